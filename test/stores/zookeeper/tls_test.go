package zookeeper

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestTLS: with the right authority the store works over TLS. With another authority, or
// without TLS, the error says why. A proxy before the server speaks TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	addr, authority := terminateTLS(t, server.Addr())
	store := open(t, "zookeeper://"+addr+"?tls=true&ca="+url.QueryEscape(authority))
	grant := want.Acquire(t, store, request("n"))
	want.Held(t, open(t, server.URL()), request("n"), "it is held over TLS")
	want.Release(t, store, grant)
	findings, err := store.Diagnose(t.Context())
	if text := fmt.Sprintf("%+v", findings); err != nil || !strings.Contains(text, "The connection is encrypted.") {
		t.Errorf("the diagnosis over TLS is %s, %v", text, err)
	}

	reportedSoon(t, "zookeeper://"+addr+"?tls=true", "certificate")
	reportedSoon(t, server.URL()+"?tls=true", "does it speak TLS?")
	await.Until(t, "without TLS the first error names it, if a connection failed during the call", func() bool {
		_, err := open(t, "zookeeper://"+addr).Acquire(t.Context(), request("n"))
		if !errors.Is(err, driver.ErrUnreachable) {
			t.Fatalf("without TLS: %v; want ErrUnreachable", err)
		}
		return strings.Contains(err.Error(), "wants TLS")
	})
}

// reportedSoon checks that each call to a store that has no server fails without waiting for one
// until its limit, and says why.
func reportedSoon(t *testing.T, url, reason string) {
	t.Helper()
	c := client(t, open(t, url), nil)
	for _, name := range []string{"n", "n", "m"} {
		_, err := c.TryLock(t.Context(), name)
		if !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: TryLock: %v; want ErrUnreachable, and %q", url, err, reason)
		}
		if err != nil && strings.Contains(err.Error(), "within") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: TryLock waited for a server: %v", url, err)
		}
	}
}

// terminateTLS starts a TLS proxy for target. It returns its address, and a file with the
// certificate to trust.
func terminateTLS(t testing.TB, target string) (addr, authority string) {
	t.Helper()
	model := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer model.Close()
	authority = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: model.Certificate().Raw})
	want.OK(t, os.WriteFile(authority, text, 0o600))
	listener := want.Value(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: model.TLS.Certificates, MinVersion: tls.VersionTLS12}))(t)
	var work sync.WaitGroup
	t.Cleanup(func() { listener.Close(); work.Wait() })
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { join(client, target) })
		}
	})
	return listener.Addr().String(), authority
}

// join copies data in both directions until one side closes its connection.
func join(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}
