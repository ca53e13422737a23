package criruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/container"
)

const (
	// startError is the exit code of a container whose program could not be started, as with other runtimes.
	startError = 128
	// killTimeout bounds the wait for a killed container; only a process stuck in the kernel needs so long.
	killTimeout = 30 * time.Second
)

// StartContainer starts the shim and returns when the container's program runs or could not be started.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	r.mutex.Lock()
	starting, err := r.container(id)
	r.mutex.Unlock()
	if err != nil {
		return err
	}
	started, alive, err := starting.folder().Start()
	if err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	starting.started = &started
	if started.Error != "" {
		exited := container.Exited{Code: startError, At: started.At}
		starting.exited = &exited
		return errors.Join(errors.New(started.Error), starting.folder().RecordExit(exited))
	}
	starting.done = make(chan struct{})
	go r.await(starting, alive)
	return nil
}

// resume follows a container that an earlier program of this node had started.
func (r *Runtime) resume(found *record) error {
	started, err := found.folder().Started()
	if err != nil {
		// Created and never started: the kubelet makes a new one.
		return nil
	}
	found.started = &started
	if exited, err := found.folder().Exited(); err == nil {
		found.exited = &exited
		return nil
	}
	alive, err := found.folder().Watch()
	if err != nil {
		return err
	}
	found.done = make(chan struct{})
	go r.await(found, alive)
	return nil
}

// await records the end of a container; a shim that died without a word was killed, and its container with it.
func (r *Runtime) await(running *record, alive container.Alive) {
	alive.Wait()
	exited, err := running.folder().Exited()
	if err != nil {
		exited = container.Exited{Code: 128 + int(unix.SIGKILL), At: time.Now()}
		_ = running.folder().RecordExit(exited)
	}
	r.mutex.Lock()
	running.exited = &exited
	r.mutex.Unlock()
	close(running.done)
}

// StopContainer asks the first process to end and, timeout seconds later, kills every process of the container.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.mutex.Lock()
	stopping, err := r.container(id)
	if err != nil {
		r.mutex.Unlock()
		return nil
	}
	started, done, ended := stopping.started, stopping.done, stopping.exited != nil
	r.mutex.Unlock()
	if started == nil || done == nil || ended {
		return nil
	}
	if timeout > 0 {
		if err := started.Signal(unix.SIGTERM); err != nil {
			return err
		}
		if closedWithin(ctx, done, time.Duration(timeout)*time.Second) {
			return nil
		}
	}
	// The first process is the init of the container's PID namespace: the kernel kills all the others with it.
	if err := started.Signal(unix.SIGKILL); err != nil {
		return err
	}
	if !closedWithin(ctx, done, killTimeout) {
		return fmt.Errorf("container %s is still there %s after SIGKILL", id, killTimeout)
	}
	return nil
}

func closedWithin(ctx context.Context, done <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
