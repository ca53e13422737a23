package criruntime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats describes one container; use of processor and memory is not measured.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, err := r.container(id)
	if err != nil {
		return nil, err
	}
	return r.statsOf(found)
}

// ListContainerStats describes the running containers that pass the filter.
func (r *Runtime) ListContainerStats(_ context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var all []*runtimeapi.ContainerStats
	for _, one := range r.containers {
		if one.state() != runtimeapi.ContainerState_CONTAINER_RUNNING || !matches(filter.GetId(), one.ID) ||
			!matches(filter.GetPodSandboxId(), one.SandboxID) || !containsAll(one.Config.Labels, filter.GetLabelSelector()) {
			continue
		}
		stats, err := r.statsOf(one)
		if err != nil {
			return nil, err
		}
		all = append(all, stats)
	}
	return all, nil
}

func (r *Runtime) statsOf(one *record) (*runtimeapi.ContainerStats, error) {
	usage, err := fileSystemUsage(r.node.Dir)
	if err != nil {
		return nil, err
	}
	// A container has no writable layer of its own.
	usage.UsedBytes, usage.InodesUsed = &runtimeapi.UInt64Value{}, &runtimeapi.UInt64Value{}
	attributes := &runtimeapi.ContainerAttributes{
		Id: one.ID, Metadata: one.Config.Metadata, Labels: one.Config.Labels, Annotations: one.Config.Annotations,
	}
	return &runtimeapi.ContainerStats{Attributes: attributes, WritableLayer: usage}, nil
}
