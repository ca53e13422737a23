package podnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespaces are the files that hold a pod's namespaces while no process of it runs.
type Namespaces struct{ Dir string }

// Net is the pod's network namespace.
func (n Namespaces) Net() string { return filepath.Join(n.Dir, "net") }

// IPC is the pod's IPC namespace.
func (n Namespaces) IPC() string { return filepath.Join(n.Dir, "ipc") }

// UTS is the pod's host name.
func (n Namespaces) UTS() string { return filepath.Join(n.Dir, "uts") }

// Create makes the namespaces and pins each to its file, so that they outlive the node's process.
// With hostNetwork the network namespace is the cluster's own and nothing is made for it.
func (n Namespaces) Create(hostname string, hostNetwork bool) error {
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		// The thread is left in the new namespaces and never unlocked: the Go runtime ends it with the goroutine.
		runtime.LockOSThread()
		done <- n.createOnThisThread(hostname, hostNetwork)
	}()
	return <-done
}

func (n Namespaces) createOnThisThread(hostname string, hostNetwork bool) error {
	flags := unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !hostNetwork {
		flags |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("new namespaces for a pod: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("host name %q: %w", hostname, err)
	}
	if !hostNetwork {
		// Pods own their namespace, and real runtimes let them bind low ports without a capability too.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o644); err != nil {
			return err
		}
	}
	for kind, path := range map[string]string{"net": n.Net(), "ipc": n.IPC(), "uts": n.UTS()} {
		source := fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind)
		if err := pin(source, path); err != nil {
			return err
		}
	}
	return nil
}

func pin(source, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	file.Close()
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// Remove lets the namespaces go.
func (n Namespaces) Remove() error {
	var failures []error
	for _, path := range []string{n.Net(), n.IPC(), n.UTS()} {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			failures = append(failures, fmt.Errorf("unpin %s: %w", path, err))
		}
	}
	return errors.Join(append(failures, os.RemoveAll(n.Dir))...)
}

// Do runs action on a thread inside the pod's network namespace; sockets made there stay in it.
func (n Namespaces) Do(action func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- n.doOnThisThread(action)
	}()
	return <-done
}

func (n Namespaces) doOnThisThread(action func() error) error {
	namespace, err := os.Open(n.Net())
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", n.Net(), err)
	}
	return action()
}
