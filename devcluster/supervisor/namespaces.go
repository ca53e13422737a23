package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
)

const namespacesHint = "user namespaces are needed; see the sysctls user.max_user_namespaces," +
	" kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"

// runningCell is the first process of the cluster's namespaces.
type runningCell struct {
	command *exec.Cmd
	// life ends with this process, however it ends, and the cell watches it.
	life *os.File
}

// startCell makes the namespaces. This user becomes the root user in them, and no other user exists there.
func startCell(spec layout.Spec) (*runningCell, error) {
	lifeReader, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeReader.Close()
	report, reportWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer report.Close()
	command := exec.Command("/proc/self/exe", "--state", spec.StateDir)
	command.Args[0] = "cell"
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.ExtraFiles = []*os.File{lifeReader, reportWriter}
	command.SysProcAttr = isolation()
	err = command.Start()
	reportWriter.Close()
	if err != nil {
		life.Close()
		return nil, fmt.Errorf("make namespaces: %w; %s", err, namespacesHint)
	}
	started := &runningCell{command: command, life: life}
	message, err := io.ReadAll(report)
	if err == nil && len(message) > 0 {
		err = errors.New(string(message))
	}
	if err != nil {
		started.kill()
		_ = started.wait()
		return nil, err
	}
	return started, nil
}

func isolation() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Setsid:      true,
		Pdeathsig:   syscall.SIGKILL,
	}
}

func (r *runningCell) pid() int { return r.command.Process.Pid }

// kill ends the cell, and the kernel ends every process in its PID namespace with it.
func (r *runningCell) kill() {
	_ = r.command.Process.Kill()
	r.life.Close()
}

// wait returns after the kernel has ended every process of the namespace.
func (r *runningCell) wait() error {
	err := r.command.Wait()
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}
