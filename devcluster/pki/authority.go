// Package pki makes the keys, certificates and kubeconfigs of a local cluster; they live as long as the cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	"distserve.io/devcluster/layout"
)

const validity = 10 * 365 * 24 * time.Hour

// Identity is what a certificate says about its holder.
type Identity struct {
	Name      string
	Groups    []string
	Addresses []string
	Hosts     []string
}

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte
}

// Pair is a certificate and its key, both in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes a self-signed authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(Identity{Name: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key, PEM: encode("CERTIFICATE", der)}, nil
}

// Issue makes a key and a certificate good for both ends of a connection.
func (a *Authority) Issue(identity Identity) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(identity)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	return Pair{Certificate: encode("CERTIFICATE", der), Key: private}, err
}

// KeyPair makes the key that signs ServiceAccount tokens; Certificate holds its public half.
func KeyPair() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	return Pair{Certificate: encode("PUBLIC KEY", public), Key: private}, err
}

// Write stores the pair as name.crt and name.key.
func (p Pair) Write(state layout.State, name string) error {
	if err := layout.WriteFile(state.PKI(name+".crt"), p.Certificate, 0o644); err != nil {
		return err
	}
	return layout.WriteFile(state.PKI(name+".key"), p.Key, 0o600)
}

func template(identity Identity) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	addresses := make([]net.IP, 0, len(identity.Addresses))
	for _, address := range identity.Addresses {
		addresses = append(addresses, net.ParseIP(address))
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: identity.Name, Organization: identity.Groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  addresses,
		DNSNames:     identity.Hosts,
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
