package demo

import (
	"context"
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

// startProxy starts the built-in balancer.
func startProxy(ctx context.Context, shops []string, clients int) (*localServer, error) {
	var next atomic.Uint64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	return startServer(ctx, &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  silent,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shops[(next.Add(1)-1)%uint64(len(shops))]})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the shop does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}, transport.CloseIdleConnections)
}

// localServer is an HTTP server in this process.
type localServer struct {
	http.Server
	address string
	ended   chan struct{}
	err     error // why it has ended
}

// silent is the log of servers, whose clients get every error.
var silent = log.New(io.Discard, "", 0)

// startServer serves on a free port. It calls ended at the end.
func startServer(ctx context.Context, handler http.Handler, ended func()) (*localServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &localServer{address: listener.Addr().String(), ended: make(chan struct{})}
	s.Handler, s.ReadHeaderTimeout, s.ErrorLog = handler, time.Minute, silent
	go func() {
		defer close(s.ended)
		s.err = s.Serve(listener)
		_ = listener.Close() // is closed already, unless Serve has failed
		ended()
	}()
	return s, nil
}

func (s *localServer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
}

func (s *localServer) close() {
	_ = s.Server.Close() // no request is pending
	<-s.ended
}
