package container

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

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

const (
	notStarted  = 126
	outputGrace = 2 * time.Second
)

// Command prepares a helper process that runs the entry; its standard streams are the caller's to set.
func (e Entry) Command() (*exec.Cmd, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	command, err := applet(EnterApplet, string(text))
	if err != nil {
		return nil, err
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A process that the program leaves behind may hold its output open for ever.
	command.WaitDelay = outputGrace
	return command, nil
}

// EnterMain is the applet: container-enter ENTRY. It enters the container's namespaces and runs the program as a child,
// since only a child lands in the PID namespace.
func EnterMain(args []string) int {
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	command, err := startIn(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return notStarted
	}
	return exitCode(command.Wait())
}

func startIn(text string) (*exec.Cmd, error) {
	var entry Entry
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return nil, err
	}
	if err := entry.enter(); err != nil {
		return nil, err
	}
	// The container does not show this program's file, but its own /proc still leads to it.
	command := exec.Command("/proc/self/exe", text)
	command.Args[0] = ProgramApplet
	command.Env = []string{}
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: entry.Terminal}
	return command, command.Start()
}

// ProgramMain is the applet: container-program ENTRY, the child that becomes the program. It asks by itself to be
// killed with its parent: Go would take a parent in another PID namespace for a dead one.
func ProgramMain(args []string) int {
	runtime.LockOSThread()
	var entry Entry
	err := json.Unmarshal([]byte(args[0]), &entry)
	if err == nil {
		err = entry.become()
	}
	fmt.Fprintln(os.Stderr, err)
	return notStarted
}

func (e Entry) become() error {
	if err := os.Chdir(e.WorkingDir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	program, err := lookUp(e.Args[0], e.Env)
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if err := syscall.Exec(program, e.Args, e.Env); err != nil {
		return fmt.Errorf("exec %s: %w", program, err)
	}
	return nil
}

// enter moves this thread; the mount namespace needs a thread that shares its folders with no other.
func (e Entry) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the shared folders: %w", err)
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
