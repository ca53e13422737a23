// Package container turns a folder with a specification into a running process: a shim that outlives the node program,
// an init that builds the root file system, and a helper that enters a running container.
package container

import (
	"path/filepath"
	"time"

	"distserve.io/devcluster/layout"
)

// Spec says what one container is. Paths of sources are paths of the host.
type Spec struct {
	Args       []string `json:"args"`
	Env        []string `json:"env"`
	WorkingDir string   `json:"workingDir"`
	Mounts     []Mount  `json:"mounts"`
	Devices    []string `json:"devices"`
	// Files are the container's own versions of single files, such as /etc/resolv.conf.
	Files []Mount `json:"files"`
	// HostPaths are folders of the host that must be seen although they lie below a private folder or a volume.
	HostPaths []Mount `json:"hostPaths"`
	// Hidden are folders of the host that must not be seen.
	Hidden     []string `json:"hidden"`
	SharedMem  string   `json:"sharedMemory"`
	Namespaces []string `json:"namespaces"`
	LogPath    string   `json:"logPath"`
}

// Mount binds a source of the host to a path in the container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// Started is what the shim says about the first process; Error is empty when it runs.
type Started struct {
	PID       int       `json:"pid"`
	StartTime uint64    `json:"startTime"`
	Shim      int       `json:"shim"`
	At        time.Time `json:"at"`
	Error     string    `json:"error,omitempty"`
}

// Exited is how the first process ended, in the convention of shells: 128 plus the signal.
type Exited struct {
	Code int       `json:"code"`
	At   time.Time `json:"at"`
}

// Folder is where one container lives on disk.
type Folder struct{ Dir string }

func (f Folder) spec() string    { return filepath.Join(f.Dir, "spec.json") }
func (f Folder) started() string { return filepath.Join(f.Dir, "started.json") }
func (f Folder) exited() string  { return filepath.Join(f.Dir, "exited.json") }
func (f Folder) alive() string   { return filepath.Join(f.Dir, "alive") }
func (f Folder) root() string    { return filepath.Join(f.Dir, "root") }

// Spec reads the specification.
func (f Folder) Spec() (Spec, error) {
	var spec Spec
	return spec, layout.ReadJSON(f.spec(), &spec)
}

// Started reads what the shim wrote at the start.
func (f Folder) Started() (Started, error) {
	var started Started
	return started, layout.ReadJSON(f.started(), &started)
}

// Exited reads what the shim wrote at the end.
func (f Folder) Exited() (Exited, error) {
	var exited Exited
	return exited, layout.ReadJSON(f.exited(), &exited)
}
