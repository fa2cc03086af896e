package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
)

// EtcdTLS is an etcd that accepts only TLS from clients. Its certificate is for
// 127.0.0.1 and localhost, by an authority of its own. It demands a certificate
// of the same authority from its clients.
type EtcdTLS struct {
	*Server
	CAFile, CertFile, KeyFile string // for clients, in PEM
	Config                    *tls.Config
}

// RunEtcdTLS starts an EtcdTLS for a test, and stops it when the test ends.
func RunEtcdTLS(t testing.TB) *EtcdTLS {
	t.Helper()
	s, err := StartEtcdTLS()
	if err != nil {
		t.Fatal(err)
	}
	Group{s.Server}.stopAfter(t)
	return s
}

// StartEtcdTLS starts an EtcdTLS.
func StartEtcdTLS() (*EtcdTLS, error) {
	files, err := newCertificates()
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(files[caFile])
	own, err := tls.X509KeyPair(files[clientCertificateFile], files[clientKeyFile])
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	config := &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	prober := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}

	kind := *Etcd
	kind.Init = func(in Instance) ([]Command, error) {
		for name, content := range files {
			if err := writeOwned(filepath.Join(in.Dir, name), string(content)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	kind.Args = func(in Instance) []string {
		peer := peerURL(busPort(in.Port))
		return append(etcdArgs(in, "https", "dlock", peer, "dlock="+peer),
			"--trusted-ca-file", filepath.Join(in.Dir, caFile),
			"--cert-file", filepath.Join(in.Dir, certificateFile),
			"--key-file", filepath.Join(in.Dir, keyFile),
			"--client-cert-auth",
		)
	}
	kind.Probe = func(ctx context.Context, addr string) error { return probeEtcd(ctx, prober, "https://"+addr) }
	s, err := Start(&kind)
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(s.Dir(), name) }
	return &EtcdTLS{Server: s, CAFile: in(caFile), CertFile: in(clientCertificateFile), KeyFile: in(clientKeyFile), Config: config}, nil
}

// SecureURL returns the URL with the files that a client needs.
func (s *EtcdTLS) SecureURL() string {
	query := url.Values{"tls": {"true"}, "ca": {s.CAFile}, "cert": {s.CertFile}, "key": {s.KeyFile}}
	return s.URL() + "?" + query.Encode()
}
