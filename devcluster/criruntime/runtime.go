package criruntime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/klog/v2"

	"distserve.io/devcluster/layout"
)

const (
	runtimeName    = "distserve-process"
	runtimeVersion = "1.0.0"
	criVersion     = "v1"
	// kubeletInterface is the version of the interface as a whole, which the kubelet compares with its own.
	kubeletInterface = "0.1.0"
)

// Runtime serves one node.
type Runtime struct {
	unsupported
	node      layout.NodeState
	stateDir  string
	images    Images
	streaming streaming.Server

	mutex      sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*record
	addresses  addresses
}

var _ cri.RuntimeService = &Runtime{}

// New finds what an earlier program of this node has left and serves exec and port-forward streams.
func New(state layout.State, node layout.NodeState, images Images) (*Runtime, error) {
	runtime := &Runtime{
		node: node, stateDir: state.Dir, images: images,
		sandboxes: map[string]*sandbox{}, containers: map[string]*record{},
		addresses: addresses{prefix: node.PodPrefix(), used: map[string]bool{}},
	}
	for _, folder := range []string{node.Sandboxes(), node.Containers(), node.PodLogs()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	if err := runtime.recover(); err != nil {
		return nil, err
	}
	return runtime, runtime.serveStreams()
}

func (r *Runtime) recover() error {
	err := eachFolder(r.node.Sandboxes(), func(dir string) error {
		config := &runtimeapi.PodSandboxConfig{}
		found, err := load(dir, config)
		if err != nil {
			return err
		}
		pod := &sandbox{ID: found.ID, Config: config, CreatedAt: found.CreatedAt, Ready: found.Ready, Address: found.Address, dir: dir}
		r.sandboxes[pod.ID] = pod
		if pod.Ready && pod.Address != "" {
			r.addresses.used[pod.Address] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachFolder(r.node.Containers(), func(dir string) error {
		config := &runtimeapi.ContainerConfig{}
		found, err := load(dir, config)
		if err != nil {
			return err
		}
		container := &record{
			ID: found.ID, SandboxID: found.SandboxID, Config: config, Image: found.Image, CreatedAt: found.CreatedAt, dir: dir,
		}
		r.containers[container.ID] = container
		return r.resume(container)
	})
}

// eachFolder calls visit for every folder; one that is incomplete was being made when the node's program died, and goes.
func eachFolder(parent string, visit func(dir string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		if err := visit(dir); err != nil {
			klog.Background().Error(err, "Dropping an incomplete record", "folder", dir)
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// Version names the runtime.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: kubeletInterface, RuntimeName: runtimeName, RuntimeVersion: runtimeVersion, RuntimeApiVersion: criVersion,
	}, nil
}

// Status is always ready: there is nothing behind this process that could be away.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	conditions := []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: conditions}}, nil
}

// UpdateRuntimeConfig is told the node's pod range, which is fixed here.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// Close has nothing to end: containers outlive the node's program.
func (r *Runtime) Close(context.Context) error { return nil }

func (r *Runtime) sandbox(id string) (*sandbox, error) {
	if pod, found := r.sandboxes[id]; found {
		return pod, nil
	}
	return nil, notFound("pod sandbox", id)
}

func (r *Runtime) container(id string) (*record, error) {
	if container, found := r.containers[id]; found {
		return container, nil
	}
	return nil, notFound("container", id)
}

// addresses hands out the addresses of one node's pods; an address rests as long as possible before it is used again.
type addresses struct {
	prefix string
	used   map[string]bool
	last   int
}

const (
	firstHost = 2
	lastHost  = 254
)

func (a *addresses) take() (string, error) {
	for range lastHost - firstHost + 1 {
		a.last++
		if a.last < firstHost || a.last > lastHost {
			a.last = firstHost
		}
		address := fmt.Sprintf("%s.%d", a.prefix, a.last)
		if !a.used[address] {
			a.used[address] = true
			return address, nil
		}
	}
	return "", fmt.Errorf("all %d pod addresses of the node are in use", lastHost-firstHost+1)
}
