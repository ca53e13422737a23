package container

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Entry says what to run in a running container.
type Entry struct {
	PID        int      `json:"pid"`
	Args       []string `json:"args"`
	Env        []string `json:"env"`
	WorkingDir string   `json:"workingDir"`
	Terminal   bool     `json:"terminal"`
}

const notStarted = 126

// Command prepares a helper process that runs the entry; its standard streams are the caller's to set.
func (e Entry) Command() (*exec.Cmd, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	command := exec.Command("/proc/self/exe", "container-exec", string(text))
	command.Args[0] = "container-exec"
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return command, nil
}

// ExecMain is the applet: container-exec ENTRY. It enters the container's namespaces and runs the program as a child,
// since only a child lands in the PID namespace.
func ExecMain(args []string) int {
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	var entry Entry
	if err := json.Unmarshal([]byte(args[0]), &entry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return notStarted
	}
	command, err := entry.start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return notStarted
	}
	return exitCode(command.Wait())
}

func (e Entry) start() (*exec.Cmd, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	if err := os.Chdir(e.WorkingDir); err != nil {
		return nil, err
	}
	program, err := lookUp(e.Args[0], e.Env)
	if err != nil {
		return nil, err
	}
	if err := dropPrivileges(); err != nil {
		return nil, err
	}
	command := &exec.Cmd{Path: program, Args: e.Args, Env: e.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: e.Terminal, Pdeathsig: syscall.SIGKILL}
	return command, command.Start()
}

// enter moves this thread; the mount namespace needs a thread that shares its folders with no other.
func (e Entry) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	process, err := unix.PidfdOpen(e.PID, 0)
	if err != nil {
		return fmt.Errorf("container's first process: %w", err)
	}
	defer unix.Close(process)
	flags := unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWNS
	if err := unix.Setns(process, flags); err != nil {
		return fmt.Errorf("enter the container: %w", err)
	}
	return nil
}
