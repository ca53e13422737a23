package podnet

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"distserve.io/devcluster/layout"
)

const podLink = "eth0"

// Attach joins the pod's network namespace to the bridge with the given address.
// linkName names the outer end and must be unique and shorter than 16 bytes.
func Attach(namespaces Namespaces, linkName, address string) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return err
	}
	namespace, err := os.Open(namespaces.Net())
	if err != nil {
		return err
	}
	defer namespace.Close()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: linkName, MasterIndex: bridge.Attrs().Index},
		PeerName:      podLink,
		PeerNamespace: netlink.NsFd(namespace.Fd()),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s: %w", linkName, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("link %s: %w", linkName, err)
	}
	return namespaces.Do(func() error { return configurePod(address) })
}

func configurePod(address string) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := bringUp(loopback, nil); err != nil {
		return err
	}
	link, err := netlink.LinkByName(podLink)
	if err != nil {
		return err
	}
	_, pods, err := net.ParseCIDR(layout.PodCIDR)
	if err != nil {
		return err
	}
	ones, _ := pods.Mask.Size()
	if err := bringUp(link, []string{fmt.Sprintf("%s/%d", address, ones)}); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(layout.PodGateway)})
}

// Detach removes the outer end of the pod's link, and with it the inner one.
func Detach(linkName string) error {
	link, err := netlink.LinkByName(linkName)
	if err != nil {
		if _, gone := err.(netlink.LinkNotFoundError); gone {
			return nil
		}
		return err
	}
	return netlink.LinkDel(link)
}
