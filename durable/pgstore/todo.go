package pgstore

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/durable/driver"
)

func (s *Store) SetHold(context.Context, driver.Hold) error { return errors.ErrUnsupported }

func (s *Store) Holds(context.Context) ([]driver.Hold, error) { return nil, nil }
