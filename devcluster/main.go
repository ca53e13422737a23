// Command devcluster is every program of the local cluster in one binary: the applet is the name it is called by, or else its first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"distserve.io/devcluster/applets"
	"distserve.io/devcluster/cell"
	"distserve.io/devcluster/crdcheck"
	"distserve.io/devcluster/node"
	"distserve.io/devcluster/services"
	"distserve.io/devcluster/supervisor"
)

var table = map[string]func(args []string) int{
	"etcd":                    applets.Etcd,
	"kube-apiserver":          applets.APIServer,
	"kube-controller-manager": applets.ControllerManager,
	"kube-scheduler":          applets.Scheduler,
	"kubectl":                 applets.Kubectl,
	"supervise":               supervisor.Main,
	"cell":                    cell.Main,
	"service-proxy":           services.Main,
	"node":                    node.Main,
	"crd-check":               crdcheck.Main,
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, found := table[name]; !found && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, found := table[name]
	if !found {
		names := make([]string, 0, len(table))
		for applet := range table {
			names = append(names, applet)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "devcluster: no applet %q; known applets: %v\n", name, names)
		os.Exit(2)
	}
	os.Exit(run(args))
}
