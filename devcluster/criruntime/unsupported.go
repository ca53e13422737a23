package criruntime

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unsupported answers what this runtime does not do. The kubelet knows the code and goes on without.
type unsupported struct{}

func refuse(what string) error {
	return status.Errorf(codes.Unimplemented, "the local cluster's runtime does not support %s", what)
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q not found", kind, id)
}

// Attach would need the container's standard input; use exec.
func (unsupported) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, refuse("attach: use kubectl exec or kubectl logs")
}

// CheckpointContainer is refused.
func (unsupported) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return refuse("checkpoints")
}

// GetContainerEvents is refused: the kubelet then asks once a second.
func (unsupported) GetContainerEvents(context.Context, chan *runtimeapi.ContainerEventResponse, func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return refuse("events")
}

// UpdateContainerResources is accepted: limits are not enforced in the first place.
func (unsupported) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// UpdatePodSandboxResources is accepted: limits are not enforced in the first place.
func (unsupported) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// PodSandboxStats is refused.
func (unsupported) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, refuse("pod statistics")
}

// ListPodSandboxStats is refused.
func (unsupported) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, refuse("pod statistics")
}

// ListMetricDescriptors is refused.
func (unsupported) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, refuse("metric descriptors")
}

// ListPodSandboxMetrics is refused.
func (unsupported) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, refuse("pod metrics")
}

// RuntimeConfig is refused: no cgroups are used.
func (unsupported) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return nil, refuse("a runtime configuration")
}
