//go:build !linux

package sqllock

import "errors"

// notifier is only for Linux so far.
type notifier struct{}

func newNotifier(string) (*notifier, error) { return nil, errors.ErrUnsupported }

func (*notifier) interrupt() {}

func (*notifier) run(func() bool, <-chan struct{}) {}
