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
	spec, endWithInput, err := parse(args)
	if err == nil {
		// The caller's folder may go away.
		err = os.Chdir("/")
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer stop()
		if endWithInput {
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

func parse(args []string) (spec layout.Spec, endWithInput bool, err error) {
	flags := flag.NewFlagSet("supervise", flag.ContinueOnError)
	flags.StringVar(&spec.Name, "name", "demo", "the cluster's name")
	flags.StringVar(&spec.StateDir, "state", "", "the folder that holds everything about the cluster")
	flags.StringVar(&spec.ModelsDir, "models", "", "the folder behind the PersistentVolumeClaim `models`")
	flags.IntVar(&spec.Nodes, "nodes", 1, "how many nodes")
	flags.IntVar(&spec.GPUs, "gpus", 0, "how many GPUs each node has or pretends to have")
	flags.StringVar(&spec.GPUProduct, "gpu-product", "NVIDIA-H100-80GB-HBM3", "the label nvidia.com/gpu.product of nodes with GPUs")
	flags.BoolVar(&endWithInput, "end-with-input", false, "end the cluster when standard input ends")
	if err := flags.Parse(args); err != nil {
		return spec, false, err
	}
	if !filepath.IsAbs(spec.StateDir) || !filepath.IsAbs(spec.ModelsDir) {
		return spec, false, errors.New("--state and --models must be absolute paths")
	}
	if spec.Nodes < 1 || spec.GPUs < 0 {
		return spec, false, errors.New("--nodes must be at least 1, --gpus at least 0")
	}
	return spec, endWithInput, nil
}

// supervise returns when it is told to, or when the cluster could not be started or has ended.
func supervise(ctx context.Context, spec layout.Spec) error {
	state := spec.State()
	lock, err := own(state)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := clean(state); err != nil {
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
func own(state layout.State) (*os.File, error) {
	if err := os.MkdirAll(state.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(state.Lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: another supervisor owns this folder: %w", state.Lock(), err)
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

// clean removes what an earlier cluster left: each start makes a new cluster.
func clean(state layout.State) error {
	nodes, err := filepath.Glob(filepath.Join(state.Dir, "node-*"))
	if err != nil {
		return err
	}
	stale := append(nodes, state.EtcdData(), state.PKI(""), state.Sockets(), state.Kubeconfig(), state.Spec())
	for _, path := range stale {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	for _, folder := range []string{state.Sockets(), state.Logs(), state.EtcdData()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	return nil
}
