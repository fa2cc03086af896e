//go:build !linux

package notify

import "errors"

// inotify is only for Linux so far.
type inotify struct{}

func newInotify(string) (*inotify, error) { return nil, errors.ErrUnsupported }

func (*inotify) interrupt() {}

func (*inotify) run(func() bool, <-chan struct{}) {}
