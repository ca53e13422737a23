package criruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"distserve.io/devcluster/container"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// CreateContainer writes down what the container will be.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *runtimeapi.ContainerConfig, podConfig *runtimeapi.PodSandboxConfig) (string, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pod, err := r.sandbox(sandboxID)
	if err != nil {
		return "", err
	}
	image, err := r.images.Find(config.Image.Image)
	if err != nil {
		return "", err
	}
	id := newID()
	created := &record{
		ID: id, SandboxID: sandboxID, Config: config, Image: config.Image.Image, CreatedAt: time.Now(),
		dir: filepath.Join(r.node.Containers(), id),
	}
	spec, err := r.specify(pod, config, podConfig.LogDirectory, image)
	if err != nil {
		return "", err
	}
	if err := r.write(created, spec, pod); err != nil {
		return "", errors.Join(err, os.RemoveAll(created.dir))
	}
	r.containers[id] = created
	return id, nil
}

func (r *Runtime) write(created *record, spec container.Spec, pod *sandbox) error {
	if err := os.MkdirAll(created.dir, 0o700); err != nil {
		return err
	}
	if err := created.folder().Prepare(spec); err != nil {
		return err
	}
	return created.save(pod.Config.Metadata)
}

func (r *Runtime) specify(pod *sandbox, config *runtimeapi.ContainerConfig, logFolder string, image Image) (container.Spec, error) {
	args := slices.Concat(commandOf(config, image), config.Args)
	if len(args) == 0 {
		return container.Spec{}, fmt.Errorf("image %q has no entry point and the container no command", config.Image.Image)
	}
	return container.Spec{
		Args:       args,
		Env:        environment(image, config, pod),
		WorkingDir: firstOf(config.WorkingDir, image.WorkingDir, "/"),
		Mounts:     volumes(config.Mounts),
		Devices:    devices(config.Devices),
		Files:      []container.Mount{{Source: pod.resolvConf(), Target: "/etc/resolv.conf", ReadOnly: true}},
		HostPaths:  hostPaths(image.Paths, config.Mounts),
		Hidden:     []string{r.stateDir},
		SharedMem:  pod.sharedMemory(),
		Namespaces: namespaces(pod),
		LogPath:    filepath.Join(logFolder, config.LogPath),
	}, nil
}

func namespaces(pod *sandbox) []string {
	paths := []string{pod.namespaces().IPC(), pod.namespaces().UTS()}
	if !pod.hostNetwork() {
		paths = append(paths, pod.namespaces().Net())
	}
	return paths
}

func volumes(wanted []*runtimeapi.Mount) []container.Mount {
	mounts := make([]container.Mount, 0, len(wanted))
	for _, mount := range wanted {
		mounts = append(mounts, container.Mount{Source: mount.HostPath, Target: mount.ContainerPath, ReadOnly: mount.Readonly})
	}
	return mounts
}

func devices(wanted []*runtimeapi.Device) []string {
	paths := make([]string, 0, len(wanted))
	for _, device := range wanted {
		paths = append(paths, device.HostPath)
	}
	return paths
}

// hostPaths keeps those that a private folder or a volume would cover; the others are seen anyway.
func hostPaths(paths []string, volumes []*runtimeapi.Mount) []container.Mount {
	covering := slices.Clone(container.Private)
	for _, volume := range volumes {
		covering = append(covering, filepath.Clean(volume.ContainerPath))
	}
	var mounts []container.Mount
	for _, path := range paths {
		if slices.ContainsFunc(covering, func(folder string) bool { return strings.HasPrefix(path, folder+"/") }) {
			mounts = append(mounts, container.Mount{Source: path, Target: path, ReadOnly: true})
		}
	}
	return mounts
}

func commandOf(config *runtimeapi.ContainerConfig, image Image) []string {
	if len(config.Command) > 0 {
		return config.Command
	}
	return image.Entrypoint
}

func environment(image Image, config *runtimeapi.ContainerConfig, pod *sandbox) []string {
	values := map[string]string{"PATH": defaultPath, "HOSTNAME": hostname(pod.Config)}
	for key, value := range image.Env {
		values[key] = value
	}
	for _, variable := range config.Envs {
		values[variable.Key] = string(variable.Value)
	}
	env := make([]string, 0, len(values))
	for key, value := range values {
		env = append(env, key+"="+value)
	}
	return env
}

func firstOf(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// RemoveContainer forgets a container, killing it first if it still runs.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if err := r.StopContainer(ctx, id, 0); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	gone, err := r.container(id)
	if err != nil {
		return nil
	}
	delete(r.containers, id)
	return os.RemoveAll(gone.dir)
}

func (r *Runtime) logPath(of *record) string {
	pod, err := r.sandbox(of.SandboxID)
	if err != nil {
		return ""
	}
	return filepath.Join(pod.Config.LogDirectory, of.Config.LogPath)
}

// ReopenContainerLog tells the shim that the kubelet has moved the log away.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	running, err := r.container(id)
	if err != nil {
		return err
	}
	return running.folder().SignalShim(container.ReopenSignal)
}

// ContainerStatus describes one container.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, err := r.container(id)
	if err != nil {
		return nil, err
	}
	status := &runtimeapi.ContainerStatus{
		Id: id, Metadata: found.Config.Metadata, State: found.state(), CreatedAt: found.CreatedAt.UnixNano(),
		Image: found.Config.Image, ImageRef: found.Image, ImageId: found.Image,
		Labels: found.Config.Labels, Annotations: found.Config.Annotations, Mounts: found.Config.Mounts,
		LogPath: r.logPath(found),
	}
	if found.started != nil {
		status.StartedAt = found.started.At.UnixNano()
	}
	if found.exited != nil {
		describeEnd(status, found)
	}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}

func describeEnd(status *runtimeapi.ContainerStatus, ended *record) {
	status.FinishedAt = ended.exited.At.UnixNano()
	status.ExitCode = int32(ended.exited.Code)
	switch {
	case ended.started != nil && ended.started.Error != "":
		status.Reason, status.Message = "StartError", ended.started.Error
	case ended.exited.Code == 0:
		status.Reason = "Completed"
	default:
		status.Reason = "Error"
	}
}

// ListContainers lists the containers that pass the filter.
func (r *Runtime) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var found []*runtimeapi.Container
	for _, one := range r.containers {
		if !matches(filter.GetId(), one.ID) || !matches(filter.GetPodSandboxId(), one.SandboxID) ||
			!containsAll(one.Config.Labels, filter.GetLabelSelector()) ||
			filter.GetState() != nil && filter.State.State != one.state() {
			continue
		}
		found = append(found, &runtimeapi.Container{
			Id: one.ID, PodSandboxId: one.SandboxID, Metadata: one.Config.Metadata, Image: one.Config.Image,
			ImageRef: one.Image, ImageId: one.Image, State: one.state(), CreatedAt: one.CreatedAt.UnixNano(),
			Labels: one.Config.Labels, Annotations: one.Config.Annotations,
		})
	}
	return found, nil
}
