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

// RunRedisTLS starts a RedisTLS for a test, and stops it when the test ends.
func RunRedisTLS(t testing.TB, args ...string) *RedisTLS {
	t.Helper()
	s, err := StartRedisTLS(args...)
	if err != nil {
		t.Fatal(err)
	}
	Group{s.Server}.stopAfter(t)
	return s
}

// StartRedisTLS starts a RedisTLS with additional arguments.
func StartRedisTLS(args ...string) (*RedisTLS, error) {
	files, err := newCertificates()
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(files[caFile])
	config := &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}

	kind := *Redis
	kind.Init = func(in Instance) ([]Command, error) {
		for name, content := range files {
			if err := writeOwned(filepath.Join(in.Dir, name), string(content)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	kind.Args = func(in Instance) []string {
		args := append(Redis.Args(in),
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
		conn, err := login(ctx, addr, config, Anything)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Call("PING") // fails until the data is loaded
		return err
	}
	kind.URL = func(addr string) string { return secureURL(addr, Anything) }

	s, err := Start(&kind, args...)
	if err != nil {
		return nil, err
	}
	return &RedisTLS{Server: s, CAFile: filepath.Join(s.Dir(), caFile), Config: config}, nil
}

// URLFor returns the URL for another user.
func (s *RedisTLS) URLFor(user User) string { return secureURL(s.Addr(), user) }

func secureURL(addr string, user User) string {
	u := url.URL{Scheme: "rediss", User: url.UserPassword(user.Name, user.Password), Host: addr, Path: "/0"}
	return u.String()
}

// login connects as a user.
func login(ctx context.Context, addr string, config *tls.Config, user User) (*wire.RedisConn, error) {
	plain, err := wire.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
		plain.Close()
		return nil, err
	}
	conn := wire.NewRedisConn(tls.Client(plain, config))
	if _, err := conn.Call("AUTH", user.Name, user.Password); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

const (
	caFile          = "ca.pem"
	certificateFile = "server.pem"
	keyFile         = "server-key.pem"

	clientCertificateFile = "client.pem"
	clientKeyFile         = "client-key.pem"
)

// newCertificates creates an authority, whose key is not kept, and certificates
// by it for a server and for a client. It returns the contents of the files, by
// name.
func newCertificates() (map[string][]byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	valid := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      pkix.Name{CommonName: name},
			NotBefore:    time.Now().Add(-24 * time.Hour), // valid for a server whose clock is moved, too
			NotAfter:     time.Now().Add(24 * time.Hour),
		}
	}
	ca := valid(1, "dlock tests")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	server := valid(2, "localhost")
	server.DNSNames = []string{"localhost"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} // etcd is a client of itself
	client := valid(3, "a client")
	client.KeyUsage = x509.KeyUsageDigitalSignature
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	caBytes, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{caFile: pemOf("CERTIFICATE", caBytes)}
	for _, of := range []struct {
		template          *x509.Certificate
		certFile, keyFile string
	}{{server, certificateFile, keyFile}, {client, clientCertificateFile, clientKeyFile}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		certBytes, err := x509.CreateCertificate(rand.Reader, of.template, ca, &key.PublicKey, caKey)
		if err != nil {
			return nil, err
		}
		keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		files[of.certFile], files[of.keyFile] = pemOf("CERTIFICATE", certBytes), pemOf("PRIVATE KEY", keyBytes)
	}
	return files, nil
}

func pemOf(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}
