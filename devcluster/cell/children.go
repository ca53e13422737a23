package cell

import (
	"errors"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// children reaps every process whose parent is gone, as the first process of a PID namespace must, and tells the
// components' keepers about theirs. One place calls wait, so that no exit status is taken from another.
type children struct {
	mutex sync.Mutex
	exits map[int]chan syscall.WaitStatus
}

func newChildren() *children {
	children := &children{exits: map[int]chan syscall.WaitStatus{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go children.reap(died)
	return children
}

// start runs the command; the channel gives its end. The command's own Wait must not be called.
func (c *children) start(command *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := command.Start(); err != nil {
		return nil, err
	}
	exit := make(chan syscall.WaitStatus, 1)
	c.exits[command.Process.Pid] = exit
	return exit, nil
}

func (c *children) reap(died <-chan os.Signal) {
	for range died {
		for c.reapOne() {
		}
	}
}

func (c *children) reapOne() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if err != nil && !errors.Is(err, syscall.ECHILD) {
		log.Printf("cell: wait: %v", err)
	}
	if err != nil || pid <= 0 {
		return false
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if exit, ours := c.exits[pid]; ours {
		delete(c.exits, pid)
		exit <- status
	}
	return true
}
