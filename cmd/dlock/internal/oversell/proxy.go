package oversell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// balancer sends each request to the next shop.
type balancer interface {
	// dial connects a client to the balancer.
	dial(ctx context.Context) (net.Conn, error)
	close()
}

// proxy is the built-in balancer.
type proxy struct {
	server   *http.Server
	listener net.Listener
	ended    chan struct{}
}

// startProxy starts a balancer in this process.
func startProxy(ctx context.Context, shops []string, clients int) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	var next atomic.Uint64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	quiet := log.New(io.Discard, "", 0) // the client gets every error
	handler := &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  quiet,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shops[(next.Add(1)-1)%uint64(len(shops))]})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the shop does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	p := &proxy{
		server:   &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: quiet},
		listener: listener,
		ended:    make(chan struct{}),
	}
	go func() {
		defer close(p.ended)
		defer transport.CloseIdleConnections()
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close() // the clients get an error
		}
	}()
	return p, nil
}

func (p *proxy) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", p.listener.Addr().String())
}

func (p *proxy) close() {
	_ = p.server.Close() // no request is pending
	<-p.ended
}
