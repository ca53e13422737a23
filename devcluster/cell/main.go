package cell

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
	"distserve.io/devcluster/podnet"
)

// Descriptors that the supervisor hands over after the standard three.
const (
	// lifeDescriptor ends when the supervisor does.
	lifeDescriptor = 3
	// reportDescriptor takes what went wrong while the namespaces were prepared, or nothing.
	reportDescriptor = 4
)

// Main is the applet: cell --state DIR. The supervisor starts it as the first process of new namespaces.
func Main(args []string) int {
	flags := flag.NewFlagSet("cell", flag.ExitOnError)
	stateDir := flags.String("state", "", "the cluster's state folder")
	_ = flags.Parse(args)
	unix.CloseOnExec(lifeDescriptor)
	unix.CloseOnExec(reportDescriptor)
	report := os.NewFile(reportDescriptor, "report")
	spec, err := layout.ReadSpec(*stateDir)
	if err == nil {
		err = prepare(spec)
	}
	if err != nil {
		_, _ = io.WriteString(report, err.Error())
		return 1
	}
	report.Close()
	if err := keep(spec); err != nil {
		log.Printf("cell: %v", err)
		return 1
	}
	return 0
}

// keep runs the components until the supervisor is gone; the kernel then ends every process of the namespace.
func keep(spec layout.Spec) error {
	orders, err := listen(spec)
	if err != nil {
		return err
	}
	go orders.serve()
	life := os.NewFile(lifeDescriptor, "life")
	_, err = io.Copy(io.Discard, life)
	return err
}

func prepare(spec layout.Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private in a new mount namespace: %w%s", err, mountHint)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount a fresh /proc in a new PID namespace: %w%s", err, procHint)
	}
	if err := protect(spec.ModelsDir); err != nil {
		return fmt.Errorf("make the models folder read-only: %w", err)
	}
	nodes := make([]layout.NodeState, 0, spec.Nodes)
	for index := range spec.Nodes {
		nodes = append(nodes, spec.State().Node(index))
		if err := os.MkdirAll(spec.State().Node(index).Dir, 0o700); err != nil {
			return err
		}
	}
	if err := podnet.SetUpCluster(nodes); err != nil {
		return fmt.Errorf("set up the cluster's network namespace: %w", err)
	}
	return nil
}

// protect makes a folder read-only for the cluster: an access mode of a volume is a promise that nothing enforces.
func protect(folder string) error {
	if err := unix.Mount(folder, folder, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, folder, unix.AT_RECURSIVE, &attributes)
}

const (
	mountHint = " (user namespaces without rights: see the sysctl kernel.apparmor_restrict_unprivileged_userns)"
	procHint  = " (inside a container, /proc is masked: run it with --security-opt systempaths=unconfined" +
		" --security-opt seccomp=unconfined, or on the machine itself)"
)

// waitForAPI closes the returned channel once the API server is ready for the first time.
func waitForAPI(state layout.State) <-chan struct{} {
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		if err := pollReady(context.Background(), state); err != nil && !errors.Is(err, context.Canceled) {
			log.Printf("cell: the API server is not ready yet; starting the rest all the same: %v", err)
		}
	}()
	return ready
}
