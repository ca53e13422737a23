package node

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// podsCgroup only has to be a name: machine answers for every one, and without one the kubelet complains all the time.
const podsCgroup = "pods"

// GetPodCgroupRoot names the cgroup that stands for all pods in statistics.
func (d *devices) GetPodCgroupRoot() string { return podsCgroup }

// NewPodContainerManager manages no pod's cgroup.
func (d *devices) NewPodContainerManager() cm.PodContainerManager {
	return noCgroups{d.ContainerManager.NewPodContainerManager()}
}

type noCgroups struct{ cm.PodContainerManager }

// GetPodCgroupConfig says that there is no cgroup, where the stub would fail; of one without values the kubelet panics.
func (noCgroups) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	return nil, nil
}
