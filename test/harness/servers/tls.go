package servers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// User is an account of a server with access control.
type User struct {
	Name, Password string
	rules          []string
}

// The users of a RedisTLS. The password of Anything must be escaped in a URL.
var (
	Anything   = User{"anything", "p@ss/w:rd%#?", []string{"~*", "&*", "+@all"}}
	NoScripts  = User{"noscripts", "secret2", []string{"~*", "&*", "+@all", "-@scripting"}}
	OrdersOnly = User{"ordersonly", "secret3", []string{
		"~orders:*", "&orders:*", // plain keys, and keys with a hash tag
		"~*{orders:*", "&*{orders:*",
		"+@all",
	}}
)

// RedisTLS is a Redis server that accepts only TLS. Its certificate is for
// 127.0.0.1 and localhost, by an authority of its own. Its only users are
// Anything, which its URL contains, NoScripts and OrdersOnly.
type RedisTLS struct {
	*Server
	CAFile string      // the authority's certificate, in PEM
	Config *tls.Config // for clients
}

// RunRedisTLS starts a RedisTLS with additional arguments for a test, and stops it when the test ends.
func RunRedisTLS(t testing.TB, args ...string) *RedisTLS {
	t.Helper()
	kind, config := secured(t, Redis)
	plain := kind.Args
	kind.Args = func(in Instance) []string {
		args := append(plain(in),
			"--port", "0",
			"--tls-port", strconv.Itoa(in.Port),
			"--tls-ca-cert-file", filepath.Join(in.Dir, caFile),
			"--tls-cert-file", filepath.Join(in.Dir, certificateFile),
			"--tls-key-file", filepath.Join(in.Dir, keyFile),
			"--tls-auth-clients", "no",
			"--user", "default", "off",
		)
		for _, user := range []User{Anything, NoScripts, OrdersOnly} {
			args = append(args, "--user", user.Name, "on", ">"+user.Password)
			args = append(args, user.rules...)
		}
		return args
	}
	kind.Probe = func(ctx context.Context, addr string) error {
		plain, err := wire.Dial(ctx, addr)
		if err != nil {
			return err
		}
		defer plain.Close()
		own := config.Clone()
		own.ServerName = "127.0.0.1"
		login := fmt.Sprintf("AUTH %s %s\r\nPING\r\n", Anything.Name, Anything.Password)
		return wire.ExchangeOver(tls.Client(plain, own), login, "+OK\r\n+PONG\r\n") // fails until the data is loaded
	}
	kind.URL = func(addr string) string { return secureURL(addr, Anything) }
	config = config.Clone()
	config.Certificates = nil
	s := Run(t, kind, args...)
	return &RedisTLS{Server: s, CAFile: filepath.Join(s.Dir(), caFile), Config: config}
}

// URLFor returns the URL for another user.
func (s *RedisTLS) URLFor(user User) string { return secureURL(s.Addr(), user) }

func secureURL(addr string, user User) string {
	u := url.URL{Scheme: "rediss", User: url.UserPassword(user.Name, user.Password), Host: addr, Path: "/0"}
	return u.String()
}

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
	kind, config := secured(t, Etcd)
	kind.Args = func(in Instance) []string {
		peer := peerURL(busPort(in.Port))
		return append(etcdArgs(in, "https", "dlock", peer, "dlock="+peer),
			"--trusted-ca-file", filepath.Join(in.Dir, caFile),
			"--cert-file", filepath.Join(in.Dir, certificateFile),
			"--key-file", filepath.Join(in.Dir, keyFile),
			"--client-cert-auth",
		)
	}
	prober := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	kind.Probe = func(ctx context.Context, addr string) error { return probeEtcd(ctx, prober, "https://"+addr) }
	s := Run(t, kind)
	in := func(name string) string { return filepath.Join(s.Dir(), name) }
	return &EtcdTLS{Server: s, CAFile: in(caFile), CertFile: in(clientCertificateFile), KeyFile: in(clientKeyFile), Config: config}
}

// SecureURL returns the URL with the files that a client needs.
func (s *EtcdTLS) SecureURL() string {
	query := url.Values{"tls": {"true"}, "ca": {s.CAFile}, "cert": {s.CertFile}, "key": {s.KeyFile}}
	return s.URL() + "?" + query.Encode()
}

const (
	caFile          = "ca.pem"
	certificateFile = "server.pem"
	keyFile         = "server-key.pem"

	clientCertificateFile = "client.pem"
	clientKeyFile         = "client-key.pem"
)

// secured returns a kind of server with new certificates in its folder, and the settings of its clients.
func secured(t testing.TB, kind *Kind) (*Kind, *tls.Config) {
	t.Helper()
	files, err := newCertificates()
	if err != nil {
		t.Fatalf("making certificates: %v", err)
	}
	own, err := tls.X509KeyPair(files[clientCertificateFile], files[clientKeyFile])
	if err != nil {
		t.Fatalf("reading a certificate: %v", err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(files[caFile])
	with := *kind
	with.Init = func(in Instance) ([]Command, error) {
		for name, content := range files {
			if err := writeOwned(filepath.Join(in.Dir, name), string(content)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	return &with, &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
}

// newCertificates creates an authority, whose key is not kept, and certificates
// by it for a server and for a client. It returns the contents of the files, by
// name.
func newCertificates() (map[string][]byte, error) {
	files := make(map[string][]byte)
	var authority *x509.Certificate
	var authorityKey *ecdsa.PrivateKey
	for i, c := range []struct {
		certFile, keyFile string
		template          x509.Certificate
	}{
		{caFile, "", x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}},
		{certificateFile, keyFile, x509.Certificate{
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // etcd is a client of itself
			DNSNames:    []string{"localhost"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}},
		{clientCertificateFile, clientKeyFile, x509.Certificate{
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}},
	} {
		template := &c.template
		template.SerialNumber = big.NewInt(int64(i + 1))
		template.Subject = pkix.Name{CommonName: c.certFile}
		template.NotBefore = time.Now().Add(-24 * time.Hour) // valid for a server whose clock is moved, too
		template.NotAfter = time.Now().Add(24 * time.Hour)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		if authority == nil {
			authority, authorityKey = template, key
		}
		content, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, authorityKey)
		if err != nil {
			return nil, err
		}
		files[c.certFile] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content})
		if c.keyFile == "" {
			continue
		}
		if content, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return nil, err
		}
		files[c.keyFile] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: content})
	}
	return files, nil
}
