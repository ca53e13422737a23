// Package criruntime is the container runtime behind the kubelet: a pod is a set of namespaces and a container is a local
// process in them. Every record is on disk, so that a new node program finds what an earlier one started.
package criruntime

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"distserve.io/devcluster/container"
	"distserve.io/devcluster/layout"
	"distserve.io/devcluster/podnet"
)

// sandbox is a pod: its namespaces, its address and its shared memory.
type sandbox struct {
	ID        string
	Config    *runtimeapi.PodSandboxConfig
	CreatedAt time.Time
	Ready     bool
	Address   string

	dir string
}

// record is one container; how far it got is in the files of its folder.
type record struct {
	ID        string
	SandboxID string
	Config    *runtimeapi.ContainerConfig
	Image     string
	CreatedAt time.Time

	dir     string
	started *container.Started
	exited  *container.Exited
	// done is closed when the first process and its shim have ended; nil before the start.
	done chan struct{}
}

func newID() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func (s *sandbox) namespaces() podnet.Namespaces {
	return podnet.Namespaces{Dir: filepath.Join(s.dir, "ns")}
}
func (s *sandbox) sharedMemory() string { return filepath.Join(s.dir, "shm") }
func (s *sandbox) resolvConf() string   { return filepath.Join(s.dir, "resolv.conf") }
func (s *sandbox) link() string         { return "pod" + s.ID[:12] }

func (s *sandbox) hostNetwork() bool {
	return s.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (r *record) folder() container.Folder { return container.Folder{Dir: r.dir} }

func (r *record) state() runtimeapi.ContainerState {
	switch {
	case r.exited != nil:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case r.started != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// stored is the form on disk: the configuration is a protocol buffer and has its own JSON.
type stored struct {
	ID        string          `json:"id"`
	SandboxID string          `json:"sandboxId,omitempty"`
	Config    json.RawMessage `json:"config"`
	Image     string          `json:"image,omitempty"`
	CreatedAt time.Time       `json:"createdAt"`
	Ready     bool            `json:"ready,omitempty"`
	Address   string          `json:"address,omitempty"`
	// The pod's names are repeated here for readers that know no protocol buffers.
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
}

func (s *sandbox) save() error {
	config, err := protojson.Marshal(s.Config)
	if err != nil {
		return err
	}
	return layout.WriteJSON(filepath.Join(s.dir, layout.RecordFile), stored{
		ID: s.ID, Config: config, CreatedAt: s.CreatedAt, Ready: s.Ready, Address: s.Address,
		Namespace: s.Config.Metadata.Namespace, Pod: s.Config.Metadata.Name,
	})
}

func (r *record) save(pod *runtimeapi.PodSandboxMetadata) error {
	config, err := protojson.Marshal(r.Config)
	if err != nil {
		return err
	}
	return layout.WriteJSON(filepath.Join(r.dir, layout.RecordFile), stored{
		ID: r.ID, SandboxID: r.SandboxID, Config: config, Image: r.Image, CreatedAt: r.CreatedAt,
		Namespace: pod.Namespace, Pod: pod.Name, Container: r.Config.Metadata.Name,
	})
}

func load(dir string, config proto.Message) (stored, error) {
	var found stored
	if err := layout.ReadJSON(filepath.Join(dir, layout.RecordFile), &found); err != nil {
		return found, err
	}
	return found, protojson.Unmarshal(found.Config, config)
}
