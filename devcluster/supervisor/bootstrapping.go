package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"distserve.io/devcluster/layout"
)

const (
	bootstrapTimeout = 2 * time.Minute
	pollInterval     = 100 * time.Millisecond
	modelsVolume     = "models"
)

// bootstrap makes what every local cluster has and returns when pods can run.
func bootstrap(ctx context.Context, spec layout.Spec) error {
	config, err := clientcmd.BuildConfigFromFlags("", spec.State().Kubeconfig())
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	steps := []struct {
		name string
		done func(context.Context, kubernetes.Interface, layout.Spec) error
	}{
		{"the API server answers and takes the models volume", makeModelsVolume},
		{"the models claim is made", makeModelsClaim},
		{"the namespace default has its service account", hasServiceAccount},
		{"every node is ready", nodesReady},
		{"the models claim is bound", claimBound},
	}
	start := time.Now()
	for _, step := range steps {
		if err := until(ctx, func() error { return step.done(ctx, client, spec) }); err != nil {
			return fmt.Errorf("waiting until %s: %w", step.name, err)
		}
		log.Printf("supervise: %s after %.1f s", step.name, time.Since(start).Seconds())
	}
	return nil
}

// until repeats the step until it succeeds; at the deadline the step's own error says what was missing.
func until(ctx context.Context, step func() error) error {
	for {
		err := step()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func makeModelsVolume(ctx context.Context, client kubernetes.Interface, spec layout.Spec) error {
	folder := corev1.HostPathDirectory
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: modelsVolume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: modelsVolume},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: spec.ModelsDir, Type: &folder},
			},
		},
	}
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	return ignoreExists(err)
}

func makeModelsClaim(ctx context.Context, client kubernetes.Interface, _ layout.Spec) error {
	noClass := ""
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: modelsVolume},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			StorageClassName: &noClass,
			VolumeName:       modelsVolume,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")},
			},
		},
	}
	_, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, claim, metav1.CreateOptions{})
	return ignoreExists(err)
}

func hasServiceAccount(ctx context.Context, client kubernetes.Interface, _ layout.Spec) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func nodesReady(ctx context.Context, client kubernetes.Interface, spec layout.Spec) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) == 0 && isReady(node) {
			ready++
		}
	}
	if ready < spec.Nodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, spec.Nodes)
	}
	return nil
}

func isReady(node corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func claimBound(ctx context.Context, client kubernetes.Interface, _ layout.Spec) error {
	claim, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(ctx, modelsVolume, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("the claim is %s", claim.Status.Phase)
	}
	return nil
}
