class Gram: pass
class GramPlan: pass
def gram(): pass
