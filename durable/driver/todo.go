package driver

import (
	"context"
	"errors"
)

func (m *Memory) AddJob(context.Context, Job) (Job, error) { return Job{}, errors.ErrUnsupported }

func (m *Memory) Jobs(context.Context, int) ([]Job, error) { return nil, nil }

func (m *Memory) CancelJob(context.Context, JobID, string) error { return errors.ErrUnsupported }

func (m *Memory) WorkJob(context.Context, int) (Job, []Change, error) { return Job{}, nil, nil }
