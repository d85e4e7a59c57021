package sqlitestore

import (
	"context"
	"errors"

	"github.com/resilienthttp/resilienthttp/durable/driver"
)

func (s *Store) AddJob(context.Context, driver.Job) (driver.Job, error) {
	return driver.Job{}, errors.ErrUnsupported
}

func (s *Store) Jobs(context.Context, int) ([]driver.Job, error) { return nil, nil }

func (s *Store) CancelJob(context.Context, driver.JobID, string) error { return errors.ErrUnsupported }

func (s *Store) WorkJob(context.Context, int) (driver.Job, []driver.Change, error) {
	return driver.Job{}, nil, nil
}
