// Command container-shim is every program that runs once per container or per exec: small, since many of them run.
package main

import (
	"fmt"
	"os"

	"distserve.io/devcluster/container"
)

func main() {
	applets := map[string]func(args []string) int{
		container.ShimApplet:    container.ShimMain,
		container.InitApplet:    container.InitMain,
		container.EnterApplet:   container.EnterMain,
		container.ProgramApplet: container.ProgramMain,
	}
	run, found := applets[os.Args[0]]
	if !found {
		fmt.Fprintf(os.Stderr, "container-shim: started by the node program only, not as %q\n", os.Args[0])
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}
