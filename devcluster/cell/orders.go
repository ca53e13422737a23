package cell

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"distserve.io/devcluster/layout"
	"distserve.io/devcluster/streams"
)

// Socket is where the supervisor gives its orders.
const Socket = "cell.sock"

const orderTimeout = time.Minute

// Order asks to start or stop a component, or only for the list.
type Order struct {
	Action string `json:"action"`
	Name   string `json:"name,omitempty"`
}

// Answer is the state after the order.
type Answer struct {
	Components []State `json:"components"`
	Error      string  `json:"error,omitempty"`
}

type orders struct {
	listener *net.UnixListener
	keepers  []*keeper
}

func listen(spec layout.Spec) (*orders, error) {
	listener, err := streams.Listen(spec.State().Sockets(), Socket)
	if err != nil {
		return nil, err
	}
	children := newChildren()
	now := make(chan struct{})
	close(now)
	apiReady := waitForAPI(spec.State())
	orders := &orders{listener: listener}
	for _, component := range Components(spec) {
		held := (<-chan struct{})(now)
		if component.NeedsAPI {
			held = apiReady
		}
		keeper := newKeeper(component, spec.State(), children, held)
		orders.keepers = append(orders.keepers, keeper)
		go keeper.run()
	}
	return orders, nil
}

func (o *orders) serve() {
	for {
		connection, err := o.listener.AcceptUnix()
		if err != nil {
			return
		}
		go o.answer(connection)
	}
}

func (o *orders) answer(connection *net.UnixConn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(orderTimeout))
	var order Order
	if err := json.NewDecoder(connection).Decode(&order); err != nil {
		return
	}
	var answer Answer
	if err := o.obey(order); err != nil {
		answer.Error = err.Error()
	}
	for _, keeper := range o.keepers {
		answer.Components = append(answer.Components, keeper.status())
	}
	_ = json.NewEncoder(connection).Encode(answer)
}

func (o *orders) obey(order Order) error {
	if order.Action == "list" {
		return nil
	}
	wanted := order.Action == "start"
	if !wanted && order.Action != "stop" {
		return fmt.Errorf("unknown action %q: want start, stop or list", order.Action)
	}
	names := make([]string, 0, len(o.keepers))
	for _, keeper := range o.keepers {
		if keeper.component.Name == order.Name {
			keeper.order(wanted)
			return nil
		}
		names = append(names, keeper.component.Name)
	}
	return fmt.Errorf("no component %q; there are %v", order.Name, names)
}

// Send gives one order to the cell whose sockets are in folder.
func Send(folder string, order Order) (Answer, error) {
	connection, err := streams.Connect(folder, Socket)
	if err != nil {
		return Answer{}, err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(orderTimeout))
	if err := json.NewEncoder(connection).Encode(order); err != nil {
		return Answer{}, err
	}
	var answer Answer
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return Answer{}, err
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("%s", answer.Error)
	}
	return answer, nil
}
