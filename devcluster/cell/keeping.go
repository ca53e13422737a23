package cell

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"distserve.io/devcluster/layout"
)

const (
	firstDelay = 200 * time.Millisecond
	lastDelay  = 10 * time.Second
	// steady is how long a component must have run for its delay to begin anew.
	steady = 30 * time.Second
	// stopGrace is what a component gets between SIGTERM and SIGKILL.
	stopGrace = 2 * time.Second
)

// State is what can be said about a component.
type State struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Running bool   `json:"running"`
}

// keeper runs one component again and again, unless it was stopped on purpose.
type keeper struct {
	component Component
	state     layout.State
	children  *children
	held      <-chan struct{}

	mutex   sync.Mutex
	pid     int
	wanted  bool
	changed chan struct{}
	exited  chan struct{}
}

func newKeeper(component Component, state layout.State, children *children, held <-chan struct{}) *keeper {
	keeper := &keeper{
		component: component, state: state, children: children, held: held,
		wanted: true, changed: make(chan struct{}, 1), exited: make(chan struct{}),
	}
	close(keeper.exited)
	return keeper
}

func (k *keeper) run() {
	<-k.held
	delay := firstDelay
	for {
		if !k.isWanted() {
			<-k.changed
			delay = firstDelay
			continue
		}
		started := time.Now()
		if err := k.runOnce(); err != nil {
			log.Printf("cell: %s: %v", k.component.Name, err)
		}
		if time.Since(started) > steady {
			delay = firstDelay
		}
		k.pause(delay)
		delay = min(2*delay, lastDelay)
	}
}

// pause waits for the delay or for an order.
func (k *keeper) pause(delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.changed:
	}
}

func (k *keeper) runOnce() error {
	output, err := os.OpenFile(k.state.Log(k.component.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command("/proc/self/exe", k.component.Args[1:]...)
	command.Args[0] = k.component.Args[0]
	command.Env = environment()
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	exit, err := k.children.start(command)
	if err != nil {
		return err
	}
	k.setRunning(command.Process.Pid)
	status := <-exit
	k.setExited()
	if k.isWanted() {
		return fmt.Errorf("ended: %s", describe(status))
	}
	return nil
}

// environment keeps what programs need and drops the rest: a proxy's address would send calls to the API server away.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp"}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

func (k *keeper) isWanted() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.wanted
}

func (k *keeper) setRunning(pid int) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.pid, k.exited = pid, make(chan struct{})
}

func (k *keeper) setExited() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.pid = 0
	close(k.exited)
}

func (k *keeper) status() State {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return State{Name: k.component.Name, PID: k.pid, Running: k.pid != 0}
}

// order starts or stops the component; a stop returns when the process has ended.
func (k *keeper) order(wanted bool) {
	k.mutex.Lock()
	k.wanted = wanted
	pid, exited := k.pid, k.exited
	k.mutex.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
	if wanted || pid == 0 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(stopGrace):
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-exited
	}
}
