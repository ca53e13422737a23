package criruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"distserve.io/devcluster/podnet"
)

// RunPodSandbox makes the pod's namespaces, its link and its shared memory.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() != runtimeapi.NamespaceMode_CONTAINER {
		return "", refuse("hostPID and shareProcessNamespace")
	}
	id := newID()
	pod := &sandbox{ID: id, Config: config, CreatedAt: time.Now(), Ready: true, dir: filepath.Join(r.node.Sandboxes(), id)}
	if err := r.build(pod); err != nil {
		return "", errors.Join(err, r.dismantle(pod), os.RemoveAll(pod.dir))
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sandboxes[id] = pod
	return id, nil
}

func (r *Runtime) build(pod *sandbox) error {
	if err := os.MkdirAll(pod.sharedMemory(), 0o700); err != nil {
		return err
	}
	if err := unix.Mount("shm", pod.sharedMemory(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("shared memory of the pod: %w", err)
	}
	if err := os.WriteFile(pod.resolvConf(), []byte(resolvConf(pod.Config.GetDnsConfig())), 0o644); err != nil {
		return err
	}
	if err := pod.namespaces().Create(hostname(pod.Config), pod.hostNetwork()); err != nil {
		return err
	}
	if pod.hostNetwork() {
		return pod.save()
	}
	r.mutex.Lock()
	address, err := r.addresses.take()
	r.mutex.Unlock()
	if err != nil {
		return err
	}
	pod.Address = address
	if err := podnet.Attach(pod.namespaces(), pod.link(), address); err != nil {
		return err
	}
	return pod.save()
}

func hostname(config *runtimeapi.PodSandboxConfig) string {
	if config.Hostname != "" {
		return config.Hostname
	}
	return config.Metadata.Name
}

func resolvConf(dns *runtimeapi.DNSConfig) string {
	var text strings.Builder
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(dns.Searches, " "))
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&text, "options %s\n", strings.Join(dns.Options, " "))
	}
	return text.String()
}

// StopPodSandbox kills what still runs in the pod and gives its link and address back.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	r.mutex.Lock()
	pod, err := r.sandbox(id)
	members := r.members(id)
	r.mutex.Unlock()
	if err != nil {
		return nil
	}
	for _, member := range members {
		if err := r.StopContainer(ctx, member.ID, 0); err != nil {
			return err
		}
	}
	if err := r.dismantle(pod); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pod.Ready = false
	return pod.save()
}

// dismantle can be repeated.
func (r *Runtime) dismantle(pod *sandbox) error {
	if err := podnet.Detach(pod.link()); err != nil {
		return err
	}
	if err := pod.namespaces().Remove(); err != nil {
		return err
	}
	err := unix.Unmount(pod.sharedMemory(), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("shared memory of the pod: %w", err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.addresses.used, pod.Address)
	return nil
}

// RemovePodSandbox forgets the pod and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mutex.Lock()
	pod, err := r.sandbox(id)
	members := r.members(id)
	r.mutex.Unlock()
	if err != nil {
		return nil
	}
	for _, member := range members {
		if err := r.RemoveContainer(ctx, member.ID); err != nil {
			return err
		}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.sandboxes, id)
	return os.RemoveAll(pod.dir)
}

func (r *Runtime) members(sandboxID string) []*record {
	var members []*record
	for _, container := range r.containers {
		if container.SandboxID == sandboxID {
			members = append(members, container)
		}
	}
	return members
}

// PodSandboxStatus describes one pod. The namespace options are echoed: without them the kubelet would take a pod on the
// node's network for a changed one and make it anew for ever.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pod, err := r.sandbox(id)
	if err != nil {
		return nil, err
	}
	options := pod.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: pod.Config.Metadata, State: pod.state(), CreatedAt: pod.CreatedAt.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: pod.Address},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
		Labels:  pod.Config.Labels, Annotations: pod.Config.Annotations,
	}}, nil
}

// ListPodSandbox lists the pods that pass the filter.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var found []*runtimeapi.PodSandbox
	for _, pod := range r.sandboxes {
		if !matches(filter.GetId(), pod.ID) || !containsAll(pod.Config.Labels, filter.GetLabelSelector()) ||
			filter.GetState() != nil && filter.State.State != pod.state() {
			continue
		}
		found = append(found, &runtimeapi.PodSandbox{
			Id: pod.ID, Metadata: pod.Config.Metadata, State: pod.state(), CreatedAt: pod.CreatedAt.UnixNano(),
			Labels: pod.Config.Labels, Annotations: pod.Config.Annotations,
		})
	}
	return found, nil
}

func matches(wanted, id string) bool { return wanted == "" || wanted == id }

func containsAll(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
