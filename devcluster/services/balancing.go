package services

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"distserve.io/devcluster/streams"
)

const connectTimeout = 5 * time.Second

// balancer hands connections to the endpoints of one port in turn.
type balancer struct {
	endpoints atomic.Pointer[[]string]
	next      atomic.Uint64
}

func newBalancer(endpoints []string) *balancer {
	balancer := &balancer{}
	balancer.endpoints.Store(&endpoints)
	return balancer
}

// connect tries each endpoint once, beginning with the one whose turn it is.
func (b *balancer) connect() (streams.HalfCloser, error) {
	endpoints := *b.endpoints.Load()
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("no endpoint is ready")
	}
	first := b.next.Add(1) - 1
	var failure error
	for offset := range uint64(len(endpoints)) {
		connection, err := dialTCP(endpoints[(first+offset)%uint64(len(endpoints))])
		if err == nil {
			return connection, nil
		}
		failure = err
	}
	return nil, failure
}

func dialTCP(address string) (streams.HalfCloser, error) {
	connection, err := net.DialTimeout("tcp", address, connectTimeout)
	if err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), nil
}

// serve splices every connection of the listener to an endpoint until the listener is closed.
func (b *balancer) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go b.handle(client.(*net.TCPConn))
	}
}

func (b *balancer) handle(client *net.TCPConn) {
	upstream, err := b.connect()
	if err != nil {
		streams.Reset(client)
		return
	}
	streams.Splice(client, upstream)
}
