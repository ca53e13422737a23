package streams

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// DialSocket is the socket through which the host reaches addresses inside the cluster.
const DialSocket = "dial.sock"

const (
	maxLine          = 512
	handshakeTimeout = 10 * time.Second
	accepted         = "ok"
)

// Dialer opens a connection to a target, which is what a client of the dial socket wrote.
type Dialer func(target string) (HalfCloser, error)

// Dial asks the dial socket in folder for a connection to target.
func Dial(folder, target string) (*net.UnixConn, error) {
	connection, err := Connect(folder, DialSocket)
	if err != nil {
		return nil, err
	}
	if err := request(connection, target); err != nil {
		connection.Close()
		return nil, err
	}
	return connection, nil
}

func request(connection *net.UnixConn, target string) error {
	if err := connection.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(connection, target); err != nil {
		return err
	}
	answer, err := readLine(connection)
	if err != nil {
		return err
	}
	if answer != accepted {
		return errors.New(answer)
	}
	return connection.SetDeadline(time.Time{})
}

// ServeDial answers every client of the listener until it is closed.
func ServeDial(listener *net.UnixListener, dial Dialer) error {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		go answer(connection, dial)
	}
}

func answer(connection *net.UnixConn, dial Dialer) {
	_ = connection.SetDeadline(time.Now().Add(handshakeTimeout))
	target, err := readLine(connection)
	if err != nil {
		connection.Close()
		return
	}
	upstream, err := dial(target)
	if err != nil {
		_, _ = fmt.Fprintln(connection, strings.ReplaceAll(err.Error(), "\n", " "))
		connection.Close()
		return
	}
	if _, err := fmt.Fprintln(connection, accepted); err != nil {
		connection.Close()
		upstream.Close()
		return
	}
	_ = connection.SetDeadline(time.Time{})
	Splice(connection, upstream)
}

// readLine reads byte by byte: what follows the line belongs to the spliced stream.
func readLine(reader io.Reader) (string, error) {
	line := make([]byte, 0, maxLine)
	next := make([]byte, 1)
	for len(line) < maxLine {
		if _, err := io.ReadFull(reader, next); err != nil {
			return "", err
		}
		if next[0] == '\n' {
			return string(line), nil
		}
		line = append(line, next[0])
	}
	return "", fmt.Errorf("line longer than %d bytes", maxLine)
}
