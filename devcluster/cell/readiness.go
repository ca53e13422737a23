package cell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"distserve.io/devcluster/layout"
)

const (
	readyTimeout  = time.Minute
	readyInterval = 100 * time.Millisecond
)

// pollReady asks the API server until it says that it is ready.
func pollReady(ctx context.Context, state layout.State) error {
	authority, err := os.ReadFile(state.PKI("ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		Timeout:   5 * time.Second,
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if err = askReady(ctx, client); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(readyInterval):
		}
	}
}

func askReady(ctx context.Context, client *http.Client) error {
	url := fmt.Sprintf("https://%s:%d/readyz", layout.APIServerAddress, layout.APIServerPort)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}
