// Package services makes ClusterIPs work: a TCP proxy in the cluster's network namespace that follows Services and
// EndpointSlices, and the dial socket through which the host reaches the same Services.
package services

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Port is one TCP port of a Service: where clients connect, and the endpoints that are ready to serve.
type Port struct {
	Name      string
	Number    int32
	ClusterIP string
	Endpoints []string
}

// Address is the ClusterIP with the port, or nothing for a headless Service.
func (p Port) Address() string {
	if p.ClusterIP == "" {
		return ""
	}
	return net.JoinHostPort(p.ClusterIP, strconv.Itoa(int(p.Number)))
}

// Ports resolves a Service against its EndpointSlices.
func Ports(service *corev1.Service, slicesOfService []*discoveryv1.EndpointSlice) []Port {
	ports := make([]Port, 0, len(service.Spec.Ports))
	for _, port := range service.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP {
			continue
		}
		resolved := Port{Name: port.Name, Number: port.Port, Endpoints: readyEndpoints(port.Name, slicesOfService)}
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			resolved.ClusterIP = service.Spec.ClusterIP
		}
		ports = append(ports, resolved)
	}
	return ports
}

func readyEndpoints(portName string, slicesOfService []*discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, slice := range slicesOfService {
		port := slicePort(portName, slice)
		if port == nil || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			// An unknown readiness counts as ready, as the API says.
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, address := range endpoint.Addresses {
				addresses = append(addresses, net.JoinHostPort(address, strconv.Itoa(int(*port))))
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func slicePort(name string, slice *discoveryv1.EndpointSlice) *int32 {
	for _, port := range slice.Ports {
		if port.Port != nil && (port.Name == nil && name == "" || port.Name != nil && *port.Name == name) {
			return port.Port
		}
	}
	return nil
}

// Target is a Service that a client of the dial socket asked for.
type Target struct{ Namespace, Name, Port string }

// ParseTarget reads NAMESPACE/SERVICE[:PORT], where PORT is a number or a name.
func ParseTarget(text string) (Target, error) {
	service, port, _ := strings.Cut(text, ":")
	namespace, name, found := strings.Cut(service, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Target{}, fmt.Errorf("service %q: want NAMESPACE/SERVICE[:PORT]", text)
	}
	return Target{Namespace: namespace, Name: name, Port: port}, nil
}

// Choose picks the port that the target names, or the first one.
func (t Target) Choose(ports []Port) (Port, error) {
	for _, port := range ports {
		if t.Port == "" || t.Port == port.Name || t.Port == strconv.Itoa(int(port.Number)) {
			return port, nil
		}
	}
	return Port{}, fmt.Errorf("service %s/%s has no TCP port %q", t.Namespace, t.Name, t.Port)
}
