// Package applets runs the unchanged upstream programs: the control plane and kubectl.
package applets

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Etcd runs etcd; it ends the process itself when it fails.
func Etcd(args []string) int {
	etcdmain.Main(append([]string{"etcd"}, args...))
	return 0
}

// APIServer runs kube-apiserver.
func APIServer(args []string) int { return run(apiserver.NewAPIServerCommand(), args) }

// ControllerManager runs kube-controller-manager.
func ControllerManager(args []string) int {
	return run(controllermanager.NewControllerManagerCommand(), args)
}

// Scheduler runs kube-scheduler.
func Scheduler(args []string) int { return run(scheduler.NewSchedulerCommand(), args) }

// Kubectl runs kubectl. It reads os.Args, from which an applet name given as first argument is taken out.
func Kubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	command := kubectl.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func run(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	return cli.Run(command)
}
