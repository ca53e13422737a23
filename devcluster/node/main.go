// Package node runs one node: the real kubelet with this project's container runtime in the same process.
package node

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"

	"distserve.io/devcluster/criruntime"
	"distserve.io/devcluster/layout"
)

// Main is the applet: node --state DIR --index N.
func Main(args []string) int {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	stateDir := flags.String("state", "", "the cluster's state folder")
	index := flags.Int("index", 0, "which of the cluster's nodes to run")
	_ = flags.Parse(args)
	logs.InitLogs()
	defer logs.FlushLogs()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *stateDir, *index); err != nil {
		klog.FromContext(ctx).Error(err, "The node failed")
		return 1
	}
	return 0
}

// run returns when the context ends; containers go on, and the next program of this node finds them.
func run(ctx context.Context, stateDir string, index int) error {
	spec, err := layout.ReadSpec(stateDir)
	if err != nil {
		return err
	}
	node := spec.State().Node(index)
	server, err := configure(spec, node)
	if err != nil {
		return err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(server.FeatureGates); err != nil {
		return err
	}
	if err := os.MkdirAll(node.Kubelet(), 0o700); err != nil {
		return err
	}
	images := criruntime.Images{File: spec.State().Images(), Folder: node.Dir}
	runtime, err := criruntime.New(spec.State(), node, images)
	if err != nil {
		return err
	}
	dependencies, err := depend(ctx, spec, node, server, runtime, images)
	if err != nil {
		return err
	}
	if err := kubeletapp.RunKubelet(ctx, server, dependencies); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
