package node

import (
	"path/filepath"

	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"distserve.io/devcluster/layout"
)

const maxPods = 110

// configure is the kubelet's configuration: upstream's defaults, less what needs cgroups, the kernel log or root.
func configure(spec layout.Spec, node layout.NodeState) (*options.KubeletServer, error) {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	flags := options.NewKubeletFlags()
	flags.RootDirectory = node.Kubelet()
	flags.CertDirectory = filepath.Join(node.Kubelet(), "pki")
	flags.HostnameOverride = node.Name()
	flags.NodeIP = node.Address()
	flags.NodeLabels = labels(spec)
	server := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}
	restrict(&server.KubeletConfiguration, node)
	secure(&server.KubeletConfiguration, spec.State(), node)
	return server, nil
}

func labels(spec layout.Spec) map[string]string {
	labels := map[string]string{"distserve.io/local-cluster": spec.Name}
	if spec.GPUs > 0 {
		labels["nvidia.com/gpu.present"] = "true"
		labels["nvidia.com/gpu.product"] = spec.GPUProduct
	}
	return labels
}

func restrict(config *kubeletconfig.KubeletConfiguration, node layout.NodeState) {
	// In a user namespace the kernel's log may be closed to us: the kubelet then goes on without watching it.
	config.FeatureGates = map[string]bool{"KubeletInUserNamespace": true}
	config.Port = int32(node.KubeletPort())
	config.ReadOnlyPort, config.HealthzPort = 0, 0
	config.PodLogsDir = node.PodLogs()
	config.VolumePluginDir = filepath.Join(node.Kubelet(), "volume-plugins")
	config.MaxPods = maxPods
	config.CgroupsPerQOS, config.CPUCFSQuota = false, false
	config.EnforceNodeAllocatable = []string{}
	config.EvictionHard = map[string]string{}
	config.ImageGCHighThresholdPercent = 100
	config.FailSwapOn = false
	config.ClusterDomain = "cluster.local"
	config.ClusterDNS = []string{layout.DNSService}
	config.RotateCertificates = false
}

func secure(config *kubeletconfig.KubeletConfiguration, state layout.State, node layout.NodeState) {
	config.TLSCertFile = state.PKI(node.Component() + "-serving.crt")
	config.TLSPrivateKeyFile = state.PKI(node.Component() + "-serving.key")
	config.Authentication.Anonymous.Enabled = false
	config.Authentication.X509.ClientCAFile = state.PKI("ca.crt")
	config.Authentication.Webhook.Enabled = true
	config.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
}
