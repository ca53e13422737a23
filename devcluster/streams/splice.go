// Package streams carries bytes between connections: splicing, and the dial protocol over a unix socket.
package streams

import (
	"io"
	"net"
	"sync"
)

// HalfCloser is a connection of which one direction can end while the other goes on.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// Splice copies both ways until both directions have ended, hands an end of stream on as such, and closes both.
// Copying between sockets stays in the kernel and holds nothing back.
func Splice(left, right HalfCloser) {
	var both sync.WaitGroup
	both.Add(2)
	go forward(left, right, &both)
	go forward(right, left, &both)
	both.Wait()
	left.Close()
	right.Close()
}

func forward(to, from HalfCloser, done *sync.WaitGroup) {
	defer done.Done()
	if _, err := io.Copy(to, from); err != nil {
		// A reset can't be handed on as a half-close: end both, so that neither side waits for ever.
		Reset(to)
		Reset(from)
		return
	}
	_ = to.CloseWrite()
}

// Reset closes the connection at once; on TCP the peer sees a reset rather than an end of stream.
func Reset(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
