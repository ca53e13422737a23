package services

import (
	"context"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// settle is how long a burst of changes is gathered before the listeners follow it.
const settle = 20 * time.Millisecond

// watched is the informers' view, which stays usable while the API server is away.
type watched struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	changed  chan struct{}
}

func watch(ctx context.Context, client kubernetes.Interface) *watched {
	factory := informers.NewSharedInformerFactory(client, 0)
	view := &watched{
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
		changed:  make(chan struct{}, 1),
	}
	notify := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { view.notify() },
		UpdateFunc: func(any, any) { view.notify() },
		DeleteFunc: func(any) { view.notify() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer(),
	} {
		if _, err := informer.AddEventHandler(notify); err != nil {
			log.Fatalf("service-proxy: %v", err)
		}
	}
	factory.Start(ctx.Done())
	return view
}

func (w *watched) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watched) ports(service *corev1.Service) ([]Port, error) {
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name})
	found, err := w.slices.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil, err
	}
	return Ports(service, found), nil
}

// all returns every port that clients can connect to.
func (w *watched) all() ([]Port, error) {
	services, err := w.services.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var ports []Port
	for _, service := range services {
		found, err := w.ports(service)
		if err != nil {
			return nil, err
		}
		ports = append(ports, found...)
	}
	return ports, nil
}

// lookup returns the port of one Service that a client of the dial socket asked for.
func (w *watched) lookup(target Target) (Port, error) {
	service, err := w.services.Services(target.Namespace).Get(target.Name)
	if err != nil {
		return Port{}, err
	}
	ports, err := w.ports(service)
	if err != nil {
		return Port{}, err
	}
	return target.Choose(ports)
}
