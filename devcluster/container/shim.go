package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
)

// Descriptors that the shim and init inherit after the standard three.
const (
	reportDescriptor = 3
	signalBase       = 128
)

// ShimMain is the applet: container-shim FOLDER. It starts the container, writes its log, waits for its end and records
// that. It is the container's parent in place of the node program, which may come and go.
func ShimMain(args []string) int {
	// The parent-death signal and the namespaces belong to the thread that starts the container.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	report := os.NewFile(reportDescriptor, "report")
	folder := Folder{Dir: args[0]}
	started, wait := start(folder)
	if err := layout.WriteJSON(folder.started(), started); err != nil && started.Error == "" {
		started.Error = err.Error()
	}
	_ = json.NewEncoder(report).Encode(started)
	report.Close()
	if wait == nil {
		return 1
	}
	exited := Exited{Code: wait(), At: time.Now()}
	if err := layout.WriteJSON(folder.exited(), exited); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// start returns what to report and, when the container runs, how to wait for its end.
func start(folder Folder) (Started, func() int) {
	failed := func(err error) (Started, func() int) { return Started{Error: err.Error(), At: time.Now()}, nil }
	// Held open until the shim ends: readers see the end of the shim as the end of this stream.
	if _, err := unix.Open(folder.alive(), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return failed(fmt.Errorf("%s: %w", folder.alive(), err))
	}
	var spec Spec
	if err := layout.ReadJSON(folder.spec(), &spec); err != nil {
		return failed(err)
	}
	if err := enter(spec.Namespaces); err != nil {
		return failed(err)
	}
	command, logs, err := launch(folder, spec)
	if err != nil {
		return failed(err)
	}
	startTime, err := StartTime(command.Process.Pid)
	if err != nil {
		return failed(err)
	}
	started := Started{PID: command.Process.Pid, StartTime: startTime, Shim: os.Getpid(), At: time.Now()}
	return started, func() int {
		logs.Wait()
		return exitCode(command.Wait())
	}
}

func launch(folder Folder, spec Spec) (*exec.Cmd, *LogWriter, error) {
	logs, err := OpenLog(spec.LogPath)
	if err != nil {
		return nil, nil, err
	}
	failure, failureWriter, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer failure.Close()
	command := exec.Command("/proc/self/exe", folder.Dir)
	command.Args[0] = InitApplet
	command.Env = []string{}
	command.ExtraFiles = []*os.File{failureWriter}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := logs.Attach(command); err != nil {
		return nil, nil, err
	}
	err = command.Start()
	failureWriter.Close()
	logs.CloseWriters()
	if err != nil {
		return nil, nil, fmt.Errorf("new namespaces for a container: %w", err)
	}
	// Init closes its end by becoming the container's program; before that it writes why it could not.
	message, err := io.ReadAll(failure)
	if err == nil && len(message) > 0 {
		err = errors.New(string(message))
	}
	if err != nil {
		_ = command.Wait()
		return nil, nil, err
	}
	return command, logs, nil
}

func enter(namespaces []string) error {
	for _, path := range namespaces {
		namespace, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.Setns(int(namespace.Fd()), 0)
		namespace.Close()
		if err != nil {
			return fmt.Errorf("enter %s: %w", path, err)
		}
	}
	return nil
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalBase + int(status.Signal())
	}
	return exit.ExitCode()
}
