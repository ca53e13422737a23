package services

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"distserve.io/devcluster/layout"
	"distserve.io/devcluster/streams"
)

// proxy keeps one listener per ClusterIP and port that has a ready endpoint: without one the kernel itself refuses.
type proxy struct {
	view      *watched
	listeners map[string]listening
	byTarget  sync.Map
}

type listening struct {
	socket   net.Listener
	balancer *balancer
}

// Main is the applet: service-proxy --state DIR.
func Main(args []string) int {
	flags := flag.NewFlagSet("service-proxy", flag.ExitOnError)
	stateDir := flags.String("state", "", "the cluster's state folder")
	_ = flags.Parse(args)
	state := layout.State{Dir: *stateDir}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, state); err != nil {
		log.Printf("service-proxy: %v", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, state layout.State) error {
	config, err := clientcmd.BuildConfigFromFlags("", state.ComponentKubeconfig("service-proxy"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	proxy := &proxy{view: watch(ctx, client), listeners: map[string]listening{}}
	socket, err := streams.Listen(state.Sockets(), streams.DialSocket)
	if err != nil {
		return err
	}
	go proxy.follow(ctx)
	go func() {
		<-ctx.Done()
		socket.Close()
	}()
	err = streams.ServeDial(socket, proxy.dial)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// dial opens what a client of the dial socket asks for: "tcp ADDRESS:PORT" or "service NAMESPACE/NAME[:PORT]".
func (p *proxy) dial(request string) (streams.HalfCloser, error) {
	kind, text, _ := strings.Cut(request, " ")
	switch kind {
	case "tcp":
		return dialTCP(text)
	case "service":
		return p.dialService(text)
	}
	return nil, fmt.Errorf("unknown kind of target %q", kind)
}

func (p *proxy) dialService(text string) (streams.HalfCloser, error) {
	target, err := ParseTarget(text)
	if err != nil {
		return nil, err
	}
	port, err := p.view.lookup(target)
	if err != nil {
		return nil, err
	}
	// Kept per target, so that the turns go on from one connection to the next.
	kept, _ := p.byTarget.LoadOrStore(target, newBalancer(nil))
	balancer := kept.(*balancer)
	balancer.endpoints.Store(&port.Endpoints)
	return balancer.connect()
}

func (p *proxy) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.view.changed:
		}
		time.Sleep(settle)
		ports, err := p.view.all()
		if err != nil {
			log.Printf("service-proxy: %v", err)
			continue
		}
		p.reconcile(ports)
	}
}

func (p *proxy) reconcile(ports []Port) {
	wanted := map[string][]string{}
	for _, port := range ports {
		if port.Address() != "" && len(port.Endpoints) > 0 {
			wanted[port.Address()] = port.Endpoints
		}
	}
	for address, current := range p.listeners {
		if _, stays := wanted[address]; !stays {
			current.socket.Close()
			delete(p.listeners, address)
		}
	}
	for address, endpoints := range wanted {
		p.ensure(address, endpoints)
	}
}

func (p *proxy) ensure(address string, endpoints []string) {
	if current, listens := p.listeners[address]; listens {
		current.balancer.endpoints.Store(&endpoints)
		return
	}
	socket, err := net.Listen("tcp4", address)
	if err != nil {
		log.Printf("service-proxy: %v", err)
		return
	}
	opened := listening{socket: socket, balancer: newBalancer(endpoints)}
	p.listeners[address] = opened
	go opened.balancer.serve(socket)
}
