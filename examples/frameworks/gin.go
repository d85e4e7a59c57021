package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// gin has no next that could be wrapped, so the guarded routes have an engine of
// their own, inside. What it is to know of the request travels in its context; what
// renders errors belongs to it, for gin sends 200 where nothing was written.
func (s *service) gin() http.Handler {
	inside := gin.New()
	inside.Use(renderErrors)
	inside.POST("/charges", s.ginCharge)

	engine := gin.New()
	engine.Use(gin.Recovery(), ginAuthenticate)
	engine.POST("/charges", gin.WrapH(s.once("charge", inside)))
	return engine
}

func (s *service) ginCharge(c *gin.Context) {
	var o order
	if err := c.ShouldBindJSON(&o); err != nil {
		c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"message": err.Error()})
		return
	}
	done, err := s.charge(o)
	if err != nil {
		_ = c.Error(err)
		return
	}
	c.JSON(http.StatusCreated, done)
}

// renderErrors answers for handlers that have left an error and nothing else.
func renderErrors(c *gin.Context) {
	c.Next()
	if err := c.Errors.Last(); err != nil && !c.Writer.Written() {
		c.JSON(statusOf(err), gin.H{"message": err.Error()})
	}
}

// ginAuthenticate is authenticate in gin's terms.
func ginAuthenticate(c *gin.Context) {
	passed := false
	authenticate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed, c.Request = true, r
		c.Next()
	})).ServeHTTP(c.Writer, c.Request)
	if !passed {
		c.Abort()
	}
}
