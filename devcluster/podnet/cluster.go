// Package podnet makes the links of the cluster: one bridge for all pods, and an own network namespace per pod.
package podnet

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"distserve.io/devcluster/layout"
)

// Bridge joins the pods of all nodes.
const Bridge = "pods0"

const localTable = 255

// SetUpCluster prepares the cluster's own network namespace: the nodes' addresses, the pods' bridge, and the service
// range as local addresses, so that a plain listener serves a ClusterIP for the pods and for the nodes.
func SetUpCluster(nodes []layout.NodeState) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	addresses := []string{layout.APIServerAddress + "/32"}
	for _, node := range nodes {
		addresses = append(addresses, node.Address()+"/32")
	}
	if err := bringUp(loopback, addresses); err != nil {
		return err
	}
	if err := addBridge(); err != nil {
		return err
	}
	_, services, err := net.ParseCIDR(layout.ServiceCIDR)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: loopback.Attrs().Index, Dst: services, Table: localTable,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s: %w", layout.ServiceCIDR, err)
	}
	return nil
}

func addBridge() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge %s: %w", Bridge, err)
	}
	_, pods, err := net.ParseCIDR(layout.PodCIDR)
	if err != nil {
		return err
	}
	ones, _ := pods.Mask.Size()
	return bringUp(bridge, []string{fmt.Sprintf("%s/%d", layout.PodGateway, ones)})
}

func bringUp(link netlink.Link, addresses []string) error {
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("address %s on %s: %w", text, link.Attrs().Name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", link.Attrs().Name, err)
	}
	return nil
}
