// Package supervisor is the part of a local cluster that stays on the host: it starts the cell and ends with it,
// forwards ports of the host's loopback into the cluster, and answers questions about the cluster.
package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"distserve.io/devcluster/container"
	"distserve.io/devcluster/layout"
)

// Main is the applet: supervise --state DIR --name NAME --models DIR [--gpus N].
func Main(args []string) int {
	// The cell is killed when the thread that started it ends, so this one stays.
	runtime.LockOSThread()
	spec, options, err := parse(args)
	if err == nil {
		err = hold(options.held)
	}
	if err == nil {
		// The caller's folder may go away.
		err = os.Chdir("/")
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer stop()
		if options.endWithInput {
			ctx = untilInputEnds(ctx)
		}
		err = supervise(ctx, spec)
	}
	if err != nil {
		log.Printf("supervise: %v", err)
		return 1
	}
	return 0
}

// untilInputEnds ends the context with the other end of our standard input: a cluster for tests must not outlive them.
func untilInputEnds(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer end()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

// options are those that only the supervisor itself needs.
type options struct {
	endWithInput bool
	// held are folders of programs that must not be removed while the cluster runs.
	held []string
}

func parse(args []string) (spec layout.Spec, options options, err error) {
	flags := flag.NewFlagSet("supervise", flag.ContinueOnError)
	flags.StringVar(&spec.Name, "name", "demo", "the cluster's name")
	flags.StringVar(&spec.StateDir, "state", "", "the folder that holds everything about the cluster")
	flags.StringVar(&spec.ModelsDir, "models", "", "the folder behind the PersistentVolumeClaim `models`")
	flags.IntVar(&spec.Nodes, "nodes", 1, "how many nodes")
	flags.IntVar(&spec.GPUs, "gpus", 0, "how many GPUs each node has or pretends to have")
	flags.StringVar(&spec.GPUProduct, "gpu-product", "NVIDIA-H100-80GB-HBM3", "the label nvidia.com/gpu.product of nodes with GPUs")
	flags.BoolVar(&options.endWithInput, "end-with-input", false, "end the cluster when standard input ends")
	flags.Func("hold", "a folder of programs to hold a shared lock on, for as long as the cluster runs; may be repeated", func(folder string) error {
		options.held = append(options.held, folder)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return spec, options, err
	}
	if !filepath.IsAbs(spec.StateDir) || !filepath.IsAbs(spec.ModelsDir) {
		return spec, options, errors.New("--state and --models must be absolute paths")
	}
	if spec.Nodes < 1 || spec.GPUs < 0 {
		return spec, options, errors.New("--nodes must be at least 1, --gpus at least 0")
	}
	return spec, options, nil
}

// hold takes locks that go with this process, however it ends: its descriptors are never closed.
func hold(folders []string) error {
	for _, folder := range folders {
		descriptor, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Flock(descriptor, unix.LOCK_SH)
		}
		if err != nil {
			return fmt.Errorf("hold %s: %w", folder, err)
		}
	}
	return nil
}

// supervise returns when it is told to, or when the cluster could not be started or has ended.
func supervise(ctx context.Context, spec layout.Spec) error {
	// A root opens nothing outside of it, whatever links lie in the folder.
	folder, err := os.OpenRoot(spec.StateDir)
	if err != nil {
		return err
	}
	defer folder.Close()
	lock, err := own(folder)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := clean(folder); err != nil {
		return err
	}
	ctx, shutDown := context.WithCancel(ctx)
	defer shutDown()
	cluster, err := newCluster(spec, shutDown)
	if err != nil {
		return err
	}
	defer cluster.close()
	return cluster.run(ctx)
}

// own takes the state folder for this process; the lock goes with the process, however it ends.
func own(folder *os.Root) (*os.File, error) {
	if claim, err := folder.Lstat(layout.ClaimFile); err != nil || !claim.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no cluster's folder: it has no file %s; start clusters with `distserve dev up`", folder.Name(), layout.ClaimFile)
	}
	lock, err := folder.OpenFile(layout.LockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: another supervisor owns this folder: %w", lock.Name(), err)
	}
	return lock, sign(lock)
}

// owner is written into the lock file, for those who must end a supervisor that does not answer.
type owner struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
}

func sign(lock *os.File) error {
	started, err := container.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	return json.NewEncoder(lock).Encode(owner{PID: os.Getpid(), StartTime: started})
}

// clean removes what an earlier cluster left, and nothing else: each start makes a new cluster.
func clean(folder *os.Root) error {
	entries, err := fs.ReadDir(folder.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !layout.OfOneRun(entry.Name()) {
			continue
		}
		if err := folder.RemoveAll(entry.Name()); err != nil {
			return err
		}
	}
	// Relative to the root.
	state := layout.State{}
	for _, path := range []string{state.Sockets(), state.Logs(), state.EtcdData()} {
		if err := folder.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	return nil
}
