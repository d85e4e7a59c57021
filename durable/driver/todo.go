package driver

import (
	"context"
	"errors"
)

func (m *Memory) SetHold(context.Context, Hold) error { return errors.ErrUnsupported }

func (m *Memory) Holds(context.Context) ([]Hold, error) { return nil, nil }
