package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
)

// InitMain is the applet: container-init FOLDER. It runs as the first process of the container's own mount and PID
// namespaces, builds the root file system and becomes the container's program.
func InitMain(args []string) int {
	// Capabilities belong to a thread, and the thread that calls exec is the one that stays.
	runtime.LockOSThread()
	failure := os.NewFile(reportDescriptor, "failure")
	unix.CloseOnExec(reportDescriptor)
	_, _ = failure.WriteString(become(Folder{Dir: args[0]}).Error())
	return 1
}

// become returns only when the container could not be started.
func become(folder Folder) error {
	var spec Spec
	if err := layout.ReadJSON(folder.spec(), &spec); err != nil {
		return err
	}
	if err := buildRoot(folder.root(), spec); err != nil {
		return err
	}
	if err := os.Chdir(spec.WorkingDir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	program, err := lookUp(spec.Args[0], spec.Env)
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := syscall.Exec(program, spec.Args, spec.Env); err != nil {
		return fmt.Errorf("exec %s: %w", program, err)
	}
	return nil
}

// lookUp finds the program as a shell would, with the container's PATH and in the container's root.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, variable := range env {
		key, value, _ := strings.Cut(variable, "=")
		if key != "PATH" {
			continue
		}
		for _, folder := range filepath.SplitList(value) {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: %w", name, exec.ErrNotFound)
}

// dropPrivileges leaves the program what an ordinary user has: the container's root user may mount nothing.
func dropPrivileges() error {
	for capability := 0; ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// StartTime tells two processes with the same id apart: the boot-relative start in clock ticks.
func StartTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command name is in parentheses and may hold anything; the start time is the 20th field after it.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %w", pid, fs.ErrInvalid)
	}
	var ticks uint64
	_, err = fmt.Sscan(fields[19], &ticks)
	return ticks, err
}
