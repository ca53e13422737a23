package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"distserve.io/devcluster/layout"
)

const gpuResource v1.ResourceName = "nvidia.com/gpu"

// sharedDevices are the GPU driver's devices that every container with a GPU needs.
var sharedDevices = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// devices is the kubelet's container manager without cgroups, but with a device plugin's work for GPUs, real or pretended.
type devices struct {
	cm.ContainerManager
	folder string
	file   string
	total  int

	mutex      sync.Mutex
	held       allocation
	activePods cm.ActivePodsFunc
}

func newDevices(spec layout.Spec, node layout.NodeState) (*devices, error) {
	gpus := v1.ResourceList{}
	if spec.GPUs > 0 {
		gpus[gpuResource] = *resource.NewQuantity(int64(spec.GPUs), resource.DecimalSI)
	}
	devices := &devices{
		ContainerManager: cm.NewStubContainerManagerWithDevicePluginResource(gpus),
		folder:           node.Dir,
		file:             filepath.Join(node.Dir, "devices.json"),
		total:            spec.GPUs,
		held:             allocation{},
		activePods:       func() []*v1.Pod { return nil },
	}
	if err := layout.ReadJSON(devices.file, &devices.held); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return devices, nil
}

// Start keeps the function that lists the live pods.
func (d *devices) Start(ctx context.Context, node *v1.Node, active cm.ActivePodsFunc, getNode cm.GetNodeFunc, sources config.SourcesReady, statuses status.PodStatusProvider, runtime internalapi.RuntimeService, isolation bool) error {
	d.mutex.Lock()
	d.activePods = active
	d.mutex.Unlock()
	return d.ContainerManager.Start(ctx, node, active, getNode, sources, statuses, runtime, isolation)
}

// GetCapacity adds the disk: the stub says zero, and no pod that asks for ephemeral storage would be placed.
func (d *devices) GetCapacity(bool) v1.ResourceList {
	info, err := fileSystem(d.folder)
	if err != nil {
		return v1.ResourceList{}
	}
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(info.Capacity), resource.BinarySI)}
}

// GetResources gives a container the devices it asked for.
func (d *devices) GetResources(_ context.Context, pod *v1.Pod, container *v1.Container) (*kubecontainer.RunContainerOptions, error) {
	quantity, asked := container.Resources.Limits[gpuResource]
	if !asked || quantity.IsZero() {
		return &kubecontainer.RunContainerOptions{}, nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	ids, err := d.held.allocate(key(pod, container.Name), int(quantity.Value()), d.total, d.live())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", gpuResource, err)
	}
	if err := layout.WriteJSON(d.file, d.held); err != nil {
		return nil, err
	}
	return runOptions(ids), nil
}

func (d *devices) live() func(string) bool {
	uids := map[string]bool{}
	for _, pod := range d.activePods() {
		uids[string(pod.UID)] = true
	}
	return func(key string) bool {
		uid, _, _ := strings.Cut(key, "/")
		return uids[uid]
	}
}

func key(pod *v1.Pod, container string) string { return string(pod.UID) + "/" + container }

func runOptions(ids []int) *kubecontainer.RunContainerOptions {
	names := make([]string, 0, len(ids))
	wanted := append([]string{}, sharedDevices...)
	for _, id := range ids {
		names = append(names, strconv.Itoa(id))
		wanted = append(wanted, fmt.Sprintf("/dev/nvidia%d", id))
	}
	options := &kubecontainer.RunContainerOptions{
		Envs: []kubecontainer.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: strings.Join(names, ",")}},
	}
	for _, path := range wanted {
		if _, err := os.Stat(path); err == nil {
			options.Devices = append(options.Devices, kubecontainer.DeviceInfo{PathOnHost: path, PathInContainer: path, Permissions: "rw"})
		}
	}
	return options
}
