package supervisor

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"distserve.io/devcluster/services"
	"distserve.io/devcluster/streams"
)

// Published is a Service that the host reaches at a port of its loopback.
type Published struct {
	Service string `json:"service"`
	Port    int    `json:"port"`
}

// publisher keeps the listeners of the published Services.
type publisher struct {
	sockets string

	mutex     sync.Mutex
	listeners map[Published]net.Listener
}

func newPublisher(sockets string) *publisher {
	return &publisher{sockets: sockets, listeners: map[Published]net.Listener{}}
}

// add publishes a Service; doing so again with the same port, or with any (0), changes nothing. The Service need not
// exist yet: it is resolved at every connection.
func (p *publisher) add(service string, port int) error {
	if _, err := services.ParseTarget(service); err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for published := range p.listeners {
		if published.Service == service && (port == 0 || port == published.Port) {
			return nil
		}
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("publish %s: %w", service, err)
	}
	chosen := Published{Service: service, Port: listener.Addr().(*net.TCPAddr).Port}
	p.listeners[chosen] = listener
	go forward(listener, p.sockets, "service "+service)
	return nil
}

func (p *publisher) list() []Published {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	list := make([]Published, 0, len(p.listeners))
	for published := range p.listeners {
		list = append(list, published)
	}
	slices.SortFunc(list, func(a, b Published) int {
		if order := strings.Compare(a.Service, b.Service); order != 0 {
			return order
		}
		return a.Port - b.Port
	})
	return list
}

func (p *publisher) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, listener := range p.listeners {
		listener.Close()
	}
}

// forward hands every connection of the listener to the target inside the cluster until the listener is closed.
// Where the target can't be reached the client's connection is reset at once.
func forward(listener net.Listener, sockets, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			upstream, err := streams.Dial(sockets, target)
			if err != nil {
				streams.Reset(client)
				return
			}
			streams.Splice(client.(*net.TCPConn), upstream)
		}()
	}
}
