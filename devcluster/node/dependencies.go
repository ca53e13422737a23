package node

import (
	"context"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"distserve.io/devcluster/criruntime"
	"distserve.io/devcluster/layout"
)

// depend puts the kubelet together: real parts wherever a user namespace allows it, ours where it does not.
func depend(ctx context.Context, spec layout.Spec, node layout.NodeState, server *options.KubeletServer, runtime *criruntime.Runtime, images criruntime.Images) (*kubelet.Dependencies, error) {
	api, err := connect(spec.State().ComponentKubeconfig(node.Component()), server)
	if err != nil {
		return nil, err
	}
	tlsOptions, err := kubeletapp.InitializeTLS(ctx, &server.KubeletFlags, &server.KubeletConfiguration)
	if err != nil {
		return nil, err
	}
	auth, reloadAuthorities, err := kubeletapp.BuildAuth(types.NodeName(node.Name()), api.client, server.KubeletConfiguration)
	if err != nil {
		return nil, err
	}
	reloadAuthorities(ctx.Done())
	devices, err := newDevices(spec, node)
	if err != nil {
		return nil, err
	}
	mounter := mount.NewWithoutSystemd("")
	return &kubelet.Dependencies{
		Auth:                      auth,
		CAdvisorInterface:         machine{node: node},
		ContainerManager:          devices,
		EventClient:               api.client.CoreV1(),
		HeartbeatClient:           api.heartbeat,
		HostUtil:                  newHostUtil(),
		KubeClient:                api.client,
		Mounter:                   mounter,
		OnHeartbeatFailure:        func() { klog.FromContext(ctx).Info("The node's heartbeat failed") },
		OOMAdjuster:               oom.NewFakeOOMAdjuster(),
		OSInterface:               operatingSystem{},
		Subpather:                 subpath.New(mounter),
		TLSOptions:                tlsOptions,
		TracerProvider:            noopoteltrace.NewTracerProvider(),
		VolumePlugins:             volumePlugins(),
		RemoteRuntimeService:      runtime,
		RemoteImageService:        images,
		PodStartupLatencyTracker:  kubeletutil.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(),
	}, nil
}

type connection struct{ client, heartbeat *kubernetes.Clientset }

func connect(kubeconfig string, server *options.KubeletServer) (connection, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return connection{}, err
	}
	config.QPS, config.Burst = float32(server.KubeAPIQPS), int(server.KubeAPIBurst)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return connection{}, err
	}
	// The heartbeat must neither wait behind other requests nor hang with them.
	beating := rest.CopyConfig(config)
	beating.QPS, beating.Timeout = -1, server.NodeStatusUpdateFrequency.Duration
	heartbeat, err := kubernetes.NewForConfig(beating)
	return connection{client: client, heartbeat: heartbeat}, err
}
