package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
)

// Prepare writes the specification; the container can then be started.
func (f Folder) Prepare(spec Spec) error {
	if err := unix.Mkfifo(f.alive(), 0o600); err != nil {
		return fmt.Errorf("%s: %w", f.alive(), err)
	}
	return layout.WriteJSON(f.spec(), spec)
}

// Start runs the shim and returns what it reported.
func (f Folder) Start() (Started, Alive, error) {
	report, reportWriter, err := os.Pipe()
	if err != nil {
		return Started{}, Alive{}, err
	}
	defer report.Close()
	shim, err := applet(ShimApplet, f.Dir)
	if err != nil {
		return Started{}, Alive{}, err
	}
	shim.ExtraFiles = []*os.File{reportWriter}
	shim.Stderr = os.Stderr
	// An own session: a signal to the node's process group must not reach containers.
	shim.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = shim.Start()
	reportWriter.Close()
	if err != nil {
		return Started{}, Alive{}, err
	}
	go func() { _ = shim.Wait() }()
	var started Started
	if err := json.NewDecoder(report).Decode(&started); err != nil {
		return Started{}, Alive{}, fmt.Errorf("the container's shim ended without a report: %w", err)
	}
	alive, err := f.Watch()
	return started, alive, err
}

// Names of the applets of the program container-shim, which lies beside the node's own program.
const (
	ShimApplet    = "container-shim"
	InitApplet    = "container-init"
	EnterApplet   = "container-enter"
	ProgramApplet = "container-program"
)

func applet(name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(filepath.Join(filepath.Dir(self), "container-shim"), args...)
	command.Args[0] = name
	return command, nil
}

// RecordExit writes the end of a container whose shim could not.
func (f Folder) RecordExit(exited Exited) error { return layout.WriteJSON(f.exited(), exited) }

// SignalShim sends a signal to the shim, which outlives the container's first process by a moment.
func (f Folder) SignalShim(signal syscall.Signal) error {
	started, err := f.Started()
	if err != nil {
		return err
	}
	return syscall.Kill(started.Shim, signal)
}

// Alive ends when the shim does.
type Alive struct{ pipe *os.File }

// Watch opens the named pipe that the shim keeps open for writing.
func (f Folder) Watch() (Alive, error) {
	pipe, err := os.OpenFile(f.alive(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	return Alive{pipe: pipe}, err
}

// Wait returns when no process holds the pipe open for writing. The poller wakes it: no thread is spent on waiting.
func (a Alive) Wait() {
	defer a.pipe.Close()
	_, _ = io.Copy(io.Discard, a.pipe)
}

// Signal sends a signal to the first process, unless it has ended. The start time makes sure that a process
// with a reused id is never hit.
func (s Started) Signal(signal syscall.Signal) error {
	process, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(process)
	if startTime, err := StartTime(s.PID); err != nil || startTime != s.StartTime {
		return nil
	}
	if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
